// xxHash64 (https://xxhash.com) of a stream of bytes, as manifests record it for each file. It
// detects damage, not malicious changes.
#pragma once

#define XXH_INLINE_ALL  // header-only: no library to link
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
    // xxHash rejects a null pointer even if the length is 0.
    if (!bytes.empty()) XXH64_update(&state_, bytes.data(), bytes.size());
  }

  // Checksum of all bytes added so far. More bytes may follow.
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
