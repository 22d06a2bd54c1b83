// The data of a run, cut into windows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/eval/tasks.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/data/interleave.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// `train` is empty if a run only evaluates; `validation` is empty too if a run only runs tasks.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ShuffledWindows> train;
  std::optional<ConsecutiveWindows> validation;
  EvalTasks tasks;
};

struct RunSources {
  std::vector<TokenSource> train;
  std::optional<Interleave> weights;  // of the training sources
  std::vector<TokenSource> validation;
};

// Throws unless a source has document boundaries: --document-mask needs at least one such source.
void check_documents(const std::vector<TokenSource>& sources, const Tokenizer& tokenizer);

// Cuts tokenized sources into windows.
void cut_windows(RunData& data, RunSources sources, const InputConfig& config, bool training);

// Reads --eval, --train and --val. Without --val the end of each source of --train is reserved for
// validation.
RunData load_run_data(const InputConfig& config, bool training,
                      std::unique_ptr<Tokenizer> tokenizer);

// Returns the file names of the sources, with their fractions if they have weights:
// "a.bin:0.7,b.bin:0.3". Directories are omitted, so that data may move.
std::string training_text(const ShuffledWindows& train);

// Prints one line per source of --train and --val to stderr.
void describe_data(const RunData& data, const InputConfig& config);

}  // namespace llmc
