// Rounding of fp32 master weights to half-precision working weights: to nearest, or stochastic.
//
// Stochastic rounding returns one of the two neighbours of x, the upper one with probability
// (x - lower) / (upper - lower), so that the expected value is x. The master weights stay fp32 and
// lose nothing either way; only the weights that the passes read differ. Rounded to nearest, a
// weight is constant until its master weight has moved by half a unit in the last place (2^-9 to
// 2^-8 of a bf16 weight). Then it jumps, and all weights err in the same direction step after step.
// Rounded stochastically, weights follow their master weights on average from the first update on.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/global_index.h"

namespace llmc {

// Rounds x to one of its neighbours in T with 32 random bits. NaN, infinity and numbers of T do not
// change. Values beyond T's largest number may become infinity, as in rounding to nearest.
template <class T>
__host__ __device__ __forceinline__ T round_stochastically(float x, std::uint32_t random);

template <>
__host__ __device__ __forceinline__ bf16 round_stochastically<bf16>(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return round_to_bf16(x);
  // The 16 dropped bits d carry into the rest with probability d / 2^16.
  return bf16{static_cast<std::uint16_t>((bits + (random >> 16)) >> 16)};
}

template <>
__host__ __device__ __forceinline__ fp16 round_stochastically<fp16>(float x, std::uint32_t random) {
  const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return round_to_fp16(x);
  std::uint32_t result = 0;
  if (magnitude >= 0x38800000u) {  // 2^-14: normal numbers lose 13 bits
    result = (magnitude - (112u << 23) + (random >> 19)) >> 13;
    if (result > 0x7c00u) result = 0x7c00u;
  } else {  // subnormal: multiples of 2^-24; the scaling is exact
    const float units = float_from_bits(magnitude) * 0x1p24f;
    result = static_cast<std::uint32_t>(units);
    const float fraction = units - static_cast<float>(result);
    if (static_cast<float>(random >> 8) * 0x1p-24f < fraction) ++result;
  }
  return fp16{static_cast<std::uint16_t>((bits_of(x) >> 16 & 0x8000u) | result)};
}

struct NearestRounding {
  void check(const char*) const {}

  // w = p rounded. The unused arguments are the index of w[0] in the range and the step; see
  // StochasticRounding.
  template <class T, int N>
  __host__ __device__ __forceinline__ void round(Vec<T, N>& w, const Vec<float, N>& p, std::int64_t,
                                                 std::int32_t) const {
    for (int k = 0; k < N; ++k) w[k] = from_float<T>(p[k]);
  }
};

// The random bits of an element depend only on the seed, the step, the tensor's number (below 2^24)
// and the element's index in the whole tensor (below 2^42), not on the rank that holds it.
struct StochasticRounding {
  std::uint64_t seed = 0;
  std::uint32_t tensor = 0;
  GlobalIndex index = {};
  std::int64_t first = 0;  // index of the range's start in the rank's tensor

  // Throws unless groups of four elements of the range are groups of the whole tensor.
  void check(const char* op) const { index.require_groups(op, first); }

  template <class T, int N>
  __host__ __device__ __forceinline__ void round(Vec<T, N>& w, const Vec<float, N>& p,
                                                 std::int64_t i, std::int32_t step) const {
    static_assert(N % 4 == 0);
    for (int k = 0; k < N; k += 4) {
      const auto group = static_cast<std::uint64_t>(index(first + i + k)) / 4;
      const PhiloxBits bits = random_bits(seed, RandomPurpose::rounding,
                                          static_cast<std::uint32_t>(step), tensor, group);
      for (int j = 0; j < 4; ++j) w[k + j] = round_stochastically<T>(p[k + j], bits.words[j]);
    }
  }
};

// out[i] = inp[i] for i < n, rounded as in update number `step`. A resumed run restores its working
// weights with it. T is bf16 or fp16; pointers are aligned to 16 bytes.
template <class T>
void stochastic_convert(T* out, const float* inp, std::int64_t n,
                        const StochasticRounding& rounding, std::int32_t step, Stream& stream);

}  // namespace llmc
