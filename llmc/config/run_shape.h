// Sizes and probabilities that a model is built and trained with, apart from its own shape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/config/choices.h"

namespace llmc {

// What a model is built for; fixed, so that its memory is.
struct RunShape {
  std::int64_t B = 1;    // sequences in a micro-batch, at most
  std::int64_t T = 1;    // tokens in a sequence, at most; up to the context
  bool training = true;  // false: no buffers for the backward pass
  Attention attention = Attention::flash;
  // Rows of logits that exist at the same time; 0: all. In bf16, 4096 rows of GPT-2's vocabulary
  // take 393 MiB. More rows make fewer and larger matrix products.
  std::int64_t logits_rows = 4096;

  std::int64_t rows() const { return B * T; }
  std::int64_t chunk_rows() const {
    return logits_rows == 0 ? rows() : std::min(rows(), logits_rows);
  }
};

// Probabilities with which elements are dropped in training, where GPT-2 does so: of the sum of
// the embeddings, of attention's probabilities, of what each branch adds to the residual stream.
struct DropoutRates {
  double embedding = 0, attention = 0, residual = 0;
};

}  // namespace llmc
