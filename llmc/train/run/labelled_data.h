// The labelled texts of a classifier as the data of a run: --classes or --train, --val and --test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/io/data/padded_batches.h"
#include "llmc/train/run/run_data.h"

namespace llmc {

// The target of a sequence is the label, at its last token that is not the pad token
// (GPT2ForSequenceClassification of transformers). A text of more than T tokens loses its end.
TokenSequence labelled_sequence(std::vector<std::int32_t> tokens, std::int32_t label,
                                std::int32_t pad_token, std::int64_t T);

// Adds the samples to `data`, which has its tokenizer, and the names of the labels. `known_labels`
// are those of the weights; empty: the data define them. Without `training` there are no samples to
// train on.
void load_labelled_data(RunData& data, const InputConfig& config, bool training,
                        const std::vector<std::string>& known_labels);

}  // namespace llmc
