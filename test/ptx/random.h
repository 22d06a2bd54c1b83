// A fixed function of seed and place, for all that the manual of PTX leaves open.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace llmc_ptx {

// 64 bits that look random, of up to three numbers (the finaliser of SplitMix64).
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  std::uint64_t x = a;
  for (const std::uint64_t next : {b, c, std::uint64_t{0}}) {
    x = (x ^ next) + 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
  }
  return x;
}

}  // namespace llmc_ptx
