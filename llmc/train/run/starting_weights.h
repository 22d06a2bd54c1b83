// The weights that a run starts from. They set the sizes of the model, and tokenizer files next to
// them set the tokenizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/train_settings.h"
#include "llmc/train/run/recorded_run.h"

namespace llmc {

struct StartingWeights {
  std::string path;  // a directory, or a model file of llm.c
  ModelConfig shape = {};
  bool resumed = false;                       // the checkpoint of the resumed run, not --init-from
  std::vector<std::string> label_names = {};  // of a classifier

  // The name of the weights in errors.
  std::string name() const { return (resumed ? "the checkpoint " : "--init-from ") + path; }
};

// The weights of the resumed run, else those of --init-from, if there are any.
std::optional<StartingWeights> starting_weights(const Request& request,
                                                const std::optional<RecordedRun>& run);

}  // namespace llmc
