// Dropout (Srivastava et al., 2014): an element becomes zero with probability p, otherwise it is
// multiplied by 1 / (1 - p), so that its expected value does not change.
//
// Which elements are dropped depends only on the seed, the step, the place in the model (the site),
// the number of the sample in the whole run, and the element's place in that sample. It does not
// depend on the micro-batch, the rank, the dtype or the tiling of a kernel. So masks are not
// stored: the backward pass draws them again.
//
//     (w0, w1, w2, w3) = philox(key seed, counter (sample low, sample high, step, 256 site + 3))
//     bits             = philox(key (w0, w1), counter (column / 4, row, plane, w2))
//     the element is dropped if word column % 4 of the bits is below p * 2^32
//
// The 3 is RandomPurpose::dropout. For activations, row is the position, column the channel, and
// plane is 0. For attention, row is the query's position, column the key's, and plane the head.
//
// A rank may hold only some rows of the batch, some columns, or some heads. Dropout::first_row,
// first_column and first_plane place them, so that every rank draws its part of the same masks.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"

namespace llmc {

// The mask of one sample at one site.
struct DropoutMask {
  PhiloxKey key;
  std::uint32_t salt;
  std::uint32_t threshold;
  float scale;                // factor of kept elements
  std::uint32_t first_plane;  // number of the caller's plane 0

  // Random words of columns 4 * group .. 4 * group + 3 of one of the caller's planes. All draws of
  // all kernels are here, so first_plane is added nowhere else.
  __device__ __forceinline__ PhiloxBits bits(std::int64_t row, std::int64_t group,
                                             std::int64_t plane) const {
    return philox(key, {{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(row),
                         first_plane + static_cast<std::uint32_t>(plane), salt}});
  }
  __device__ __forceinline__ bool keeps(std::uint32_t word) const { return word >= threshold; }
  // Factor of the element that has this random word.
  __device__ __forceinline__ float factor(std::uint32_t word) const {
    return keeps(word) ? scale : 0.0f;
  }
  // Factor of the element at this place; costs one draw per element.
  __device__ __forceinline__ float factor_at(std::int64_t row, std::int64_t column,
                                             std::int64_t plane) const {
    const PhiloxBits draw = bits(row, column / 4, plane);
    const std::uint32_t low = column % 2 != 0 ? draw.words[1] : draw.words[0];
    const std::uint32_t high = column % 2 != 0 ? draw.words[3] : draw.words[2];
    return factor(column % 4 >= 2 ? high : low);
  }
};

// The masks of a batch at one site; sequence b of the batch is sample first_sample + b. Kernels
// take it by value.
struct Dropout {
  std::uint32_t threshold = 0;  // 0: no dropout
  float scale = 1;
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;
  std::int64_t first_sample = 0;
  std::int64_t first_row = 0;  // row b * T_seq + t of the batch that is row 0 of the activations
  // The channel that is column 0 of the activations; a multiple of 4.
  std::int64_t first_column = 0;
  // The head of the model that is head 0 of attention; 0 for activations.
  std::uint32_t first_plane = 0;

  bool enabled() const { return threshold != 0; }

  __device__ __forceinline__ DropoutMask row_mask(std::int64_t b) const {
    const auto sample = static_cast<std::uint64_t>(first_sample + b);
    const PhiloxBits words =
        philox({{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}},
               {{static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32), step,
                 site << 8 | static_cast<std::uint32_t>(RandomPurpose::dropout)}});
    return {{{words.words[0], words.words[1]}}, words.words[2], threshold, scale, first_plane};
  }
};

// Dropout with probability `rate` in [0, 1). The rate is rounded to a multiple of 2^-32, and
// `scale` belongs to the rounded rate. Sites are below 2^24.
Dropout make_dropout(double rate, std::uint64_t seed, std::int64_t step, std::int64_t site,
                     std::int64_t first_sample);

// Calls f.template operator()<kDropout>(). Kernels without dropout are separate instances that
// contain no code for it.
template <class F>
void dispatch_dropout(const Dropout& dropout, F&& f) {
  if (dropout.enabled()) return f.template operator()<true>();
  f.template operator()<false>();
}

// out (rows, C) is inp with dropout; out may be inp. Row r is row dropout.first_row + r of the
// batch, and row b * T_seq + t of the batch is position t of sample first_sample + b. The number of
// rows may be 0 and need not be a multiple of T_seq. Applied to the gradient of its output, it
// computes the gradient of its input. C is a multiple of 8. Throws if dropout is off: there is
// nothing to do.
template <class T>
void apply_dropout(Tensor<T, 2> out, In<T, 2> inp, std::int64_t T_seq, const Dropout& dropout,
                   Stream& stream);

}  // namespace llmc
