#include "llmc/io/data/token_hash.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "llmc/base/checksum.h"
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

std::string source_hash(const TokenSource& source) {
  constexpr std::int64_t kBlocks = 64, kBlock = 1024;
  ContentChecksum sum;
  std::vector<std::int32_t> tokens, starts;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 16;
    for (; begin < end; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, end - begin);
      tokens.resize(static_cast<std::size_t>(count));
      starts.resize(tokens.size());
      source.copy(begin, count, tokens.data());
      source.document_starts(begin, tokens, starts.data());
      sum.add(std::as_bytes(std::span(tokens)));
      sum.add(std::as_bytes(std::span(starts)));
    }
  };
  const std::int64_t size = source.size(), rest = size - 2 * kHashedEnd;
  if (rest <= kBlocks * kBlock) {
    add(0, size);
    return sum.text();
  }
  add(0, kHashedEnd);
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    const std::int64_t begin = kHashedEnd + rest / kBlocks * i;
    add(begin, begin + kBlock);
  }
  add(size - kHashedEnd, size);
  return sum.text();
}

}  // namespace llmc
