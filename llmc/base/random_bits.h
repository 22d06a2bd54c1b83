// Numbers that no other process has.
#pragma once

#include <cstdint>
#include <random>

namespace llmc {

// 64 bits from the operating system's source of random numbers.
inline std::uint64_t random_bits() {
  std::random_device random;
  const std::uint64_t high = random(), low = random();
  return high << 32 | low;
}

}  // namespace llmc
