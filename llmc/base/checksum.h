// xxHash64 (https://xxhash.com) of a stream of bytes: what a manifest says about each file. It
// finds damage, not malice.
#pragma once

#define XXH_INLINE_ALL  // the library as a header: nothing to link
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace llmc {

class Checksum {
 public:
  Checksum() { XXH64_reset(&state_, 0); }

  void add(std::span<const std::byte> bytes) {
    // xxHash calls a null pointer an error even for no bytes.
    if (!bytes.empty()) XXH64_update(&state_, bytes.data(), bytes.size());
  }

  // Of all bytes so far; more may follow.
  std::uint64_t value() const { return XXH64_digest(&state_); }

 private:
  XXH64_state_t state_;
};

inline std::uint64_t checksum_of(std::string_view text) {
  return XXH64(text.data(), text.size(), 0);
}

// 16 lower-case hexadecimal digits, as `xxhsum -H64` prints them.
inline std::string checksum_text(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace llmc
