// xxHash (https://xxhash.com) of a stream of bytes: xxHash64, as manifests record it for each file,
// and XXH3 of 128 bits, which identifies content. They detect damage, not malicious changes.
#pragma once

#define XXH_STATIC_LINKING_ONLY  // the states are complete types
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace llmc {

class Checksum {
 public:
  Checksum() { XXH64_reset(&state_, 0); }

  void add(std::span<const std::byte> bytes);

  // Checksum of all bytes added so far. More bytes may follow.
  std::uint64_t value() const { return XXH64_digest(&state_); }

 private:
  XXH64_state_t state_;
};

inline std::uint64_t checksum_of(std::string_view text) {
  return XXH64(text.data(), text.size(), 0);
}

// 16 lower-case hexadecimal digits, as `xxhsum -H64` prints them.
std::string checksum_text(std::uint64_t value);

// XXH3, 128 bits: equal for different contents only by a chance that never occurs.
class ContentChecksum {
 public:
  ContentChecksum() { XXH3_128bits_reset(&state_); }

  void add(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }

  // 32 lower-case hexadecimal digits, as `xxhsum -H128` prints them, of all bytes added so far.
  std::string text() const;

 private:
  XXH3_state_t state_;
};

}  // namespace llmc
