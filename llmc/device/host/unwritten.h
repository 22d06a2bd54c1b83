// Fill pattern of new memory: a signalling NaN in fp32 and bf16, a quiet NaN in fp16, an absurd
// index as an integer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cwchar>

namespace llmc::host {

inline constexpr std::uint32_t kUnwritten = 0x7FA17FA1;

// `memory` must be aligned to 4 bytes. A tail of fewer than 4 bytes gets the first bytes of the
// pattern.
inline void fill_unwritten(void* memory, std::size_t bytes) {
  static_assert(sizeof(wchar_t) == sizeof kUnwritten);
  const std::size_t words = bytes / sizeof kUnwritten;
  std::wmemset(static_cast<wchar_t*>(memory), static_cast<wchar_t>(kUnwritten), words);
  std::memcpy(static_cast<char*>(memory) + words * sizeof kUnwritten, &kUnwritten,
              bytes % sizeof kUnwritten);
}

}  // namespace llmc::host
