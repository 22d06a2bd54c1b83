// Contents of scratch files that show where they belong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "llmc/base/aligned_buffer.h"

namespace llmc_test {

// Words whose values depend on their position in the file and on `version`.
inline void fill(std::span<std::byte> bytes, std::int64_t offset, std::uint64_t version) {
  auto* words = reinterpret_cast<std::uint64_t*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
    words[i] = (static_cast<std::uint64_t>(offset) / 8 + i) * 0x9e3779b97f4a7c15u + version;
  }
}

inline bool has_content(std::span<const std::byte> bytes, std::int64_t offset,
                        std::uint64_t version) {
  const llmc::AlignedBuffer expected(std::ssize(bytes));
  fill(expected.bytes(), offset, version);
  return std::ranges::equal(bytes, expected.bytes());
}

inline llmc::AlignedBuffer filled(std::int64_t size, std::int64_t offset, std::uint64_t version) {
  llmc::AlignedBuffer buffer(size);
  fill(buffer.bytes(), offset, version);
  return buffer;
}

}  // namespace llmc_test
