// A --config file of train_gpt2 that infer_gpt2 reads: most of its settings are not those of
// infer_gpt2, and some names have another meaning.
#pragma once

#include <string>
#include <vector>

namespace llmc {

// A line of a --config file.
struct ConfigLine {
  std::string name;                 // without dashes
  std::vector<std::string> values;  // as typed
};

struct TrainerConfig {
  std::vector<ConfigLine> lines;     // those for infer_gpt2
  std::vector<std::string> ignored;  // names of the others
  std::string model;                 // --out of the trainer, which is the model here; empty: none
};

// Whether a line has a setting that only train_gpt2 has.
bool is_trainer_config(const std::vector<ConfigLine>& lines);

// Keeps the settings with the same meaning (tokenizer, device, dtype, quiet) and those that
// train_gpt2 does not know. `out` becomes `model`, unless the file has a path as `model` or
// `has_model` is true.
TrainerConfig read_trainer_config(const std::vector<ConfigLine>& lines, bool has_model);

// "--config run.toml is for train_gpt2: its out, run, is --model; ignored: lr, steps"
std::string trainer_config_notice(const std::string& path, const TrainerConfig& config);

}  // namespace llmc
