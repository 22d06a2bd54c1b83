// Fill pattern of new memory: a signalling NaN in fp32 and bf16, a quiet NaN in fp16, an absurd
// index as an integer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cwchar>

namespace llmc::host {

inline constexpr std::uint32_t kUninitialisedPattern = 0x7FA17FA1;

// `memory` must be aligned to 4 bytes. A tail of fewer than 4 bytes gets the first bytes of the
// pattern.
inline void fill_uninitialised(void* memory, std::size_t bytes) {
  static_assert(sizeof(wchar_t) == sizeof kUninitialisedPattern);
  const std::size_t words = bytes / sizeof kUninitialisedPattern;
  std::wmemset(static_cast<wchar_t*>(memory), static_cast<wchar_t>(kUninitialisedPattern), words);
  std::memcpy(static_cast<char*>(memory) + words * sizeof kUninitialisedPattern,
              &kUninitialisedPattern, bytes % sizeof kUninitialisedPattern);
}

}  // namespace llmc::host
