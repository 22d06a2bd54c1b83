// The data of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/eval/tasks.h"
#include "llmc/io/data/interleave.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/run/run_samples.h"

namespace llmc {

// `train` is empty if a run only evaluates; `validation` is empty too if a run only runs tasks.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer = {};
  std::unique_ptr<TrainingSamples> train = {};
  std::unique_ptr<EvaluationSamples> validation = {};
  std::unique_ptr<EvaluationSamples> test = {};  // only evaluated at the end of a run
  EvalTasks tasks = {};
  std::vector<std::string> label_names = {};  // of a classifier
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

// Reads --eval, --train, --val, --classes and --test, for the task of the run. For a language model
// without --val the end of each source of --train is reserved for validation. `known_labels`: those
// of the weights, if these are a classifier's.
RunData load_run_data(const InputConfig& config, bool training,
                      std::unique_ptr<Tokenizer> tokenizer,
                      const std::vector<std::string>& known_labels = {});

// Prints one line per source of --train and --val to stderr.
void describe_data(const RunData& data, const InputConfig& config);

}  // namespace llmc
