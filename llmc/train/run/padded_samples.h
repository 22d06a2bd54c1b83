// Sequences of different lengths, each padded to the longest of its batch: labelled texts for a
// classifier, and conversations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/io/data/padded_batches.h"
#include "llmc/train/run/run_data.h"

namespace llmc {

// Sequences with targets, and their origin.
struct SampleSequences {
  std::string name = {};    // of the source
  std::string what = {};    // "texts" or "conversations"
  std::string detail = {};  // of the source, for messages: ", 4265 negative, 4264 positive"
  std::vector<TokenSequence> sequences = {};
};

// Without `train` a run only evaluates; a part without sequences is absent.
struct SampleParts {
  std::optional<SampleSequences> train = {};
  SampleSequences validation = {};
  SampleSequences test = {};
};

// Adds the samples to `data`. Those to train on have a new order in each epoch; those to evaluate
// go from the longest sequence to the shortest. begin() of the former throws if a step of the run
// would not begin at the given sample, because an earlier part of the run had steps of another
// size.
void add_padded_samples(RunData& data, SampleParts parts, const PaddingOptions& padding,
                        const InputConfig& config);

}  // namespace llmc
