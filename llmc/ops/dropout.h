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
// A rank may hold only some rows of the batch, or only some heads. Dropout::first_row and
// Dropout::first_plane place them, so that every rank draws its part of the same masks.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"

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
inline Dropout make_dropout(double rate, std::uint64_t seed, std::int64_t step, std::int64_t site,
                            std::int64_t first_sample) {
  require(rate >= 0 && rate < 1, "dropout probability " + std::to_string(rate) + " is out of range",
          "use a probability from 0 to below 1");
  Dropout dropout;
  const double threshold = std::fmin(std::round(rate * 0x1p32), 4294967295.0);
  dropout.threshold = static_cast<std::uint32_t>(threshold);
  dropout.scale = static_cast<float>(1 / (1 - threshold * 0x1p-32));
  dropout.seed = seed;
  dropout.step = static_cast<std::uint32_t>(step);
  dropout.site = static_cast<std::uint32_t>(site);
  dropout.first_sample = first_sample;
  return dropout;
}

// Calls f.template operator()<kDropout>(). Kernels without dropout are separate instances that
// contain no code for it.
template <class F>
void dispatch_dropout(const Dropout& dropout, F&& f) {
  if (dropout.enabled()) return f.template operator()<true>();
  f.template operator()<false>();
}

// One block per row.
template <class T>
__global__ void dropout_kernel(T* out, const T* inp, std::int64_t T_seq, std::int64_t C,
                               Dropout dropout) {
  constexpr int N = kVecSize<T>;
  const std::int64_t row = block_x();
  const std::int64_t batch_row = dropout.first_row + row;
  const DropoutMask mask = dropout.row_mask(batch_row / T_seq);
  for (std::int64_t c = thread_index() * N; c < C; c += block_size() * N) {
    Vec<T, N> x = load_vec<N>(inp + row * C + c);
    for (int k = 0; k < N; k += 4) {
      const PhiloxBits bits = mask.bits(batch_row % T_seq, (c + k) / 4, 0);
      for (int i = 0; i < 4; ++i) {
        // Select instead of multiply: a dropped Inf or NaN must become 0.
        const float value = to_float(x[k + i]) * mask.scale;
        x[k + i] = from_float<T>(mask.keeps(bits.words[i]) ? value : 0.0f);
      }
    }
    store_vec(out + row * C + c, x);
  }
}

// out (rows, C) is inp with dropout; out may be inp. Row r is row dropout.first_row + r of the
// batch, and row b * T_seq + t of the batch is position t of sample first_sample + b. The number of
// rows may be 0 and need not be a multiple of T_seq. Applied to the gradient of its output, it
// computes the gradient of its input. C is a multiple of 8. Throws if dropout is off: there is
// nothing to do.
template <class T>
void apply_dropout(Tensor<T, 2> out, In<T, 2> inp, std::int64_t T_seq, const Dropout& dropout,
                   Stream& stream) {
  const ProfileScope scope("dropout", stream, memory_traffic(out, inp));
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("apply_dropout", C);
  check_shape("inp", inp, {rows, C});
  require(T_seq > 0 && dropout.first_row >= 0,
          "apply_dropout: the sequences are empty, or the first row is negative");
  require(dropout.enabled(), "apply_dropout: dropout is disabled");
  const std::int64_t vectors = ceil_div(C, kVecSize<T>);
  const int threads = static_cast<int>(round_up(vectors < 256 ? vectors : 256, 32));
  launch(dropout_kernel<T>, Grid{rows, 1, 1}, threads, 0, stream, out.data, inp.data, T_seq, C,
         dropout);
}

}  // namespace llmc
