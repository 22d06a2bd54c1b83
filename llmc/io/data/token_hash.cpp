#include "llmc/io/data/token_hash.h"

#include <cstddef>

#include "llmc/base/hash.h"

namespace llmc {

std::uint64_t token_hash(const Batch& batch, std::int64_t first_sample) {
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
