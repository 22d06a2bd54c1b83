// Philox4x32-10, a counter-based random generator (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011): a pure function from (key, counter) to 128 random bits.
// Key and counter encode the seed, the purpose and the global index of a number, so no number
// depends on rank or layout.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/dtype.h"
#include "llmc/device/target.h"

namespace llmc {

struct PhiloxKey {
  std::uint32_t words[2];
};

struct PhiloxBits {
  std::uint32_t words[4];
};

// Purpose of a random number; distinct purposes never share numbers.
enum class RandomPurpose : std::uint32_t {
  initialisation = 1,
  sampling = 2,
  dropout = 3,
  rounding = 4
};

__host__ __device__ __forceinline__ PhiloxBits philox(PhiloxKey key, PhiloxBits counter) {
  constexpr std::uint32_t kRounds = 10;
  constexpr std::uint64_t kMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr std::uint32_t kWeyl[2] = {0x9E3779B9u, 0xBB67AE85u};
  std::uint32_t k0 = key.words[0], k1 = key.words[1];
  PhiloxBits x = counter;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiplier[0] * x.words[0];
    const std::uint64_t p1 = kMultiplier[1] * x.words[2];
    x = {{static_cast<std::uint32_t>(p1 >> 32) ^ x.words[1] ^ k0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ x.words[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += kWeyl[0];
    k1 += kWeyl[1];
  }
  return x;
}

// Returns the 128 random bits of (seed, purpose, step, tensor) at `index`. Each 32-bit word is one
// number: element i of a tensor uses word i % 4 of index i / 4.
__host__ __device__ __forceinline__ PhiloxBits random_bits(std::uint64_t seed,
                                                           RandomPurpose purpose,
                                                           std::uint32_t step, std::uint32_t tensor,
                                                           std::uint64_t index) {
  // 40 bits of index and 24 bits of tensor fill two words; step and purpose fill one each.
  const PhiloxKey key{{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  const std::uint64_t position = (static_cast<std::uint64_t>(tensor) << 40) | index;
  return philox(
      key, {{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), step,
             static_cast<std::uint32_t>(purpose)}});
}

// Uniform in (0, 1): 23 bits, centred in their cell (exact in fp32), so the result is never 0 or 1.
__host__ __device__ __forceinline__ float uniform_from_bits(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

// Two standard normal numbers from two words (Box and Muller, 1958).
__host__ __device__ __forceinline__ void normals_from_bits(std::uint32_t a, std::uint32_t b,
                                                           float& first, float& second) {
  const float radius = std::sqrt(-2.0f * std::log(uniform_from_bits(a)));
  const float angle = 6.283185307179586f * uniform_from_bits(b);
  first = radius * std::cos(angle);
  second = radius * std::sin(angle);
}

}  // namespace llmc
