// INT8 weights in memory: packed codes, a scale per column and the sums of the columns' codes.
//
// A chunk has the codes of 16 columns n and 32 terms k, 512 bytes. Chunks of the same columns are
// neighbours, in ascending order of k. The target determines the places in a chunk:
//
//   SimdCodeLayout (host): 4 terms of each of 16 columns fill a register of 64 bytes, as the VNNI
//     instructions of x86 multiply them.
//   WarpCodeLayout (GPU): the 16 bytes of a lane are its part of the operand A (columns x terms) of
//     mma_m16n8k32. A warp reads a chunk by one access, which needs no shared memory. Lane 4g + t
//     has terms 8t .. 8t + 7 of the columns g and g + 8.
//
// Columns are padded to a multiple of 64 and terms to a multiple of 32. Missing ones have the code
// 0, so they change no sum.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"

namespace llmc {

inline constexpr int kCodeColumns = 16;
inline constexpr int kCodeDepth = 32;
inline constexpr int kCodeChunk = kCodeColumns * kCodeDepth;
inline constexpr int kCodePadding = 64;  // columns

struct SimdCodeLayout {
  __host__ __device__ static constexpr int place(int column, int k) {
    return (k / 4 * kCodeColumns + column) * 4 + k % 4;
  }
};

struct WarpCodeLayout {
  __host__ __device__ static constexpr int place(int column, int k) {
    const int lane = column % 8 * 4 + k / 8;
    return lane * 16 + k % 8 / 4 * 8 + column / 8 * 4 + k % 4;
  }
};

using CodeLayout = std::conditional_t<kGpuKernels, WarpCodeLayout, SimdCodeLayout>;

// The weight (K, N) of a product, as codes. It stands for codes * scales.
struct CodeMatrix {
  const std::int8_t* codes = nullptr;  // code_bytes(K, N)
  const float* scales = nullptr;       // (padded N)
  const std::int32_t* sums = nullptr;  // (padded N): of a column's codes
  std::int64_t K = 0, N = 0;

  __host__ __device__ static std::int64_t depth_chunks(std::int64_t K) {
    return ceil_div(K, kCodeDepth);
  }
  __host__ __device__ std::int64_t depth_chunks() const { return depth_chunks(K); }
  static std::int64_t padded_columns(std::int64_t N) { return round_up(N, kCodePadding); }
  // The codes of the columns 16 i .. 16 i + 15, all terms.
  __host__ __device__ const std::int8_t* columns(std::int64_t i) const {
    return codes + i * depth_chunks() * kCodeChunk;
  }
};

inline std::int64_t code_bytes(std::int64_t K, std::int64_t N) {
  return CodeMatrix::depth_chunks(K) * kCodeDepth * CodeMatrix::padded_columns(N);
}

// Place of the code of term k and column n.
template <class Layout>
__host__ __device__ constexpr std::int64_t code_place(std::int64_t k, std::int64_t n,
                                                      std::int64_t K) {
  return (n / kCodeColumns * CodeMatrix::depth_chunks(K) + k / kCodeDepth) * kCodeChunk +
         Layout::place(static_cast<int>(n % kCodeColumns), static_cast<int>(k % kCodeDepth));
}

}  // namespace llmc
