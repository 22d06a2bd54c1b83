// Which elements dropout sets to zero, written from the description in llmc/ops/dropout.h and from
// the definition of Philox4x32-10 (Salmon et al., 2011), without any code of the engine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "test/oracle/vec.h"

namespace llmc::oracle {

using Words = std::array<std::uint32_t, 4>;

// One round multiplies words 0 and 2 by constants. The high halves of the products are xored with
// words 3 and 1 and the key, and become words 2 and 0; the low halves become words 3 and 1. After
// each round constants are added to the key.
Words philox_words(std::uint32_t key0, std::uint32_t key1, Words x);

// Dropout of a pass over a batch whose first row is sample first_sample of the run.
struct Dropout {
  double embedding = 0, attention = 0, residual = 0;  // probabilities
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  Index first_sample = 0;

  // The factor of an element of batch row b at a site: 0 or 1 / (1 - rate).
  double factor(double rate, Index site, Index b, Index row, Index column, Index plane) const;
};

// The factor of the probability of (batch row, head, query, key); an empty function means 1.
using AttentionFactor = std::function<double(Index b, Index h, Index i, Index j)>;

// Applies dropout at a site to x (B, T, C), in place; rate 0 changes nothing.
void apply_dropout(Vec& x, const Dropout& dropout, double rate, Index site, Index B, Index T,
                   Index C);

}  // namespace llmc::oracle
