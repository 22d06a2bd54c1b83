#include "llmc/base/checksum.h"

#include <cstdio>

namespace llmc {

void Checksum::add(std::span<const std::byte> bytes) {
  // xxHash rejects a null pointer even if the length is 0.
  if (!bytes.empty()) XXH64_update(&state_, bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string ContentChecksum::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
  return checksum_text(hash.high64) + checksum_text(hash.low64);
}

}  // namespace llmc
