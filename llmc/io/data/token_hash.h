// A hash of the tokens that a run trains on. The hash of a step is the sum, modulo 2^64, of one
// hash per window, which depends on the window's tokens and its number among all samples of the
// run. So it does not depend on how the windows are spread over ranks and micro-batches, and sums
// over several steps can be compared between runs with other steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/base/hash.h"
#include "llmc/io/data/batches.h"

namespace llmc {

// `first_sample`: number of the batch's first window. Masked targets (-1) count as they are.
inline std::uint64_t token_hash(const Batch& batch, std::int64_t first_sample) {
  std::uint64_t sum = 0;
  for (std::int64_t b = 0; b < batch.B; ++b) {
    std::uint64_t hash = mix64(static_cast<std::uint64_t>(first_sample + b));
    for (std::int64_t t = 0; t < batch.T; ++t) {
      const auto i = static_cast<std::size_t>(b * batch.T + t);
      hash = mix64(hash, static_cast<std::uint32_t>(batch.inputs[i]),
                   static_cast<std::uint32_t>(batch.targets[i]));
    }
    sum += hash;
  }
  return sum;
}

}  // namespace llmc
