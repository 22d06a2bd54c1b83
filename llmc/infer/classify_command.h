// `infer_gpt2 classify FILE`: the labels of texts, by a classifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/infer_settings.h"

namespace llmc {

// Prints one JSON object per text of the file command[1], in its order:
//
//     {"label": "positive", "probabilities": {"negative": 0.1, "positive": 0.9}}
//
// Batch size, chunks and the other texts change no bit of it. A text longer than the context loses
// its end, which a notice counts. Throws if a text is empty or its probabilities are not finite.
void classify_texts(const InferConfig& settings);

// The line of a text with these logits, one per label. The label is the first one with the highest
// logit; the probabilities are fp64 values of their softmax.
std::string classification_line(const std::vector<float>& logits,
                                const std::vector<std::string>& label_names);

}  // namespace llmc
