// The commands of infer_gpt2 that measure quality: `perplexity FILE` and `score TASK:FILE ...`.
// Both use the passes of training, in --dtype, so their results are those of train_gpt2 --eval (up
// to the rounding of sums if the log-probabilities of the whole vocabulary are needed too). With
// --quant, or a --kv-dtype of its own, they use the passes of generation.
#pragma once

#include "llmc/config/infer_settings.h"

namespace llmc {

// `infer_gpt2 score TASK:FILE ...`: prints the table of --eval.
void score(const InferConfig& settings);

// `infer_gpt2 perplexity FILE`: prints a table of the perplexity and, with a base model, of the
// comparison.
void perplexity(const InferConfig& settings);

}  // namespace llmc
