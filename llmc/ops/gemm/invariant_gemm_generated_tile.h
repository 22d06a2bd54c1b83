// Tiles of the products of generated rows: how a warp copies weights to shared memory and
// multiplies them by rows.
//
// A tile is 16 columns wide: in half precision, 16 columns of a row of weights are one sector of 32
// bytes, the unit of a GPU's memory. A chunk is 32 terms k of a tile. Asynchronous copies of 16
// bytes bring it to shared memory, so that bytes in flight cost no registers. The place of each
// piece of 16 bytes in its chunk makes all accesses free of bank conflicts. The order in which a
// tensor core adds the 32 terms is free, and it is chosen so that a lane reads the 8 terms of a row
// that it needs by one load of 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/gemm/invariant_gemm_parts.h"

namespace llmc::row_kernels {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kTileColumns = 16;
inline constexpr int kChunkDepth = 32;
// Neighbouring chunks belong to different warps: those of a warp are this many terms apart.
inline constexpr int kChunkStride = kChunkDepth * kWarps;
// Sums of warps are merged 16 rows at a time. Rows of 20 floats: no bank conflicts.
inline constexpr int kMergedRows = 16;
inline constexpr int kMergedStride = 20;

// ---- weights -------------------------------------------------------------------------------

// A piece of 16 bytes: its first term and column in the chunk, and its place in shared memory.
struct WeightPiece {
  int k, column, place;
};

// Piece i of the calling lane. The two pieces of a sector belong to lanes of the same copy.
template <class T, bool kLogits>
__device__ __forceinline__ WeightPiece weight_piece(int i) {
  const auto l = static_cast<unsigned>(lane());
  const int own_place = static_cast<int>(32 * i + l);
  if constexpr (std::is_same_v<T, float>) {
    const int k = static_cast<int>(l % 8 * 4), column = static_cast<int>(l / 8 * 4);
    if (kLogits) return {k, column + i, own_place};
    return {k + i, column, own_place};
  } else if constexpr (kLogits) {
    return {static_cast<int>(l % 4 * 8), static_cast<int>(l / 4) + 8 * i, own_place};
  } else {
    // k = 8t + 2j + e. ldmatrix reads the 8 pieces with the same j and half: one line of 128 bytes.
    const int half = static_cast<int>(l & 1), e = static_cast<int>(l >> 1 & 1);
    const int t = 2 * i + static_cast<int>(l >> 2 & 1), j = static_cast<int>(l >> 3);
    return {8 * t + 2 * j + e, 8 * half, (2 * j + half) * 8 + ((2 * t + e) ^ (4 * half))};
  }
}

// Starts a warp's copy of the chunk of `weight` at term k and `column`. Missing ones become zero.
template <bool kLogits, class T>
__device__ __forceinline__ void copy_chunk(T* chunk, const T* weight, int N, int K, int column,
                                           int k) {
  constexpr int V = kVecSize<T>;
  for (int i = 0; i < kChunkDepth * kTileColumns / V / 32; ++i) {
    const WeightPiece piece = weight_piece<T, kLogits>(i);
    const int row = k + piece.k, n = column + piece.column;
    const bool valid = row < K && n < N;
    const std::int64_t offset = kLogits ? std::int64_t{n} * K + row : std::int64_t{row} * N + n;
    copy_async_16(chunk + piece.place * V, weight + (valid ? offset : 0), valid);
  }
}

// ---- rows ----------------------------------------------------------------------------------

// The rows of a block, normalised if the call has a norm.
template <class T>
struct GeneratedRows {
  static constexpr int V = kVecSize<T>;
  const T* inp;  // the block's first row
  int count;
  int K;
  const RowStatistics* statistics;  // null: no norm
  const T* norm_weight;
  const T* norm_bias;

  __device__ __forceinline__ Vec<T, V> load(int row, int k) const {
    if (row < count && k < K) return load_vec<V>(inp + static_cast<unsigned>(row * K + k));
    Vec<T, V> zero;
    for (int v = 0; v < V; ++v) zero[v] = from_float<T>(0);
    return zero;
  }
  // The numbers that the product reads, from those that `load` returned.
  __device__ __forceinline__ Vec<T, V> normalised(const Vec<T, V>& x, int row, int k) const {
    if (statistics == nullptr || row >= count || k >= K) return x;
    return normalise(x, statistics[row], norm_weight + k, norm_bias + k);
  }
};

// ---- products ------------------------------------------------------------------------------

// The sums of a warp in half precision: tensor cores multiply 16 columns by groups of 8 rows. Lane
// 4g + t holds columns g, g + 8 of rows 2t, 2t + 1 of each group. It reads terms 8t .. 8t + 7 of
// row g of a chunk: four of them for each of two instructions.
template <class T, bool kLogits>
struct GeneratedTile {
  static constexpr int kRows = 32;
  static constexpr int kGroups = kRows / 8;
  static constexpr int kChunkElements = kChunkDepth * kTileColumns;
  static constexpr int kSlab = 3;  // chunks that a warp copies and waits for together
  static constexpr int kRing = 3;  // slabs in flight
  float sums[kGroups][4] = {};

  // The parts of a group's rows that a lane needs for a slab. Those of the first group are loaded
  // one slab ahead.
  struct Ahead {
    Vec<T, 8> x[kSlab];
  };
  static __device__ __forceinline__ Vec<T, 8> load(const GeneratedRows<T>& rows, int group, int k,
                                                   int j) {
    return rows.load(8 * group + lane() / 4, k + j * kChunkStride + lane() % 4 * 8);
  }
  // k is the first term of the slab.
  static __device__ __forceinline__ Ahead load(const GeneratedRows<T>& rows, int k, int group = 0) {
    Ahead ahead;
    for (int j = 0; j < kSlab; ++j) ahead.x[j] = load(rows, group, k, j);
    return ahead;
  }

  // The weights of a chunk as operands A (columns, terms) of two instructions.
  static __device__ __forceinline__ void load_weights(std::uint32_t (&a)[2][4], const T* chunk) {
    if constexpr (kLogits) {
      for (int half = 0; half < 2; ++half) {
        std::uint32_t pairs[4];
        const Vec<T, 8> w = load_vec<8>(chunk + (32 * half + lane()) * 8);
        std::memcpy(pairs, &w, sizeof pairs);
        for (int i = 0; i < 4; ++i) a[i / 2][i % 2 * 2 + half] = pairs[i];
      }
    } else {
      const auto l = static_cast<unsigned>(lane());
      const unsigned matrix = l / 8, place = l % 8 ^ matrix % 2 * 4;
      for (unsigned p = 0; p < 2; ++p)
        ldmatrix_x4_transposed(a[p], chunk + ((4 * p + matrix) * 8 + place) * 8);
    }
  }

  // Adds the terms of the slab at k, for which `ahead` was loaded, and loads it for next_k.
  __device__ __forceinline__ void multiply(const T* slab, const GeneratedRows<T>& rows,
                                           Ahead& ahead, int k, int next_k) {
    for_constants<kGroups>([&]<int group>() {
      if (8 * group >= rows.count) return;
      Ahead loaded;
      if constexpr (group > 0) loaded = load(rows, k, group);
      for (int j = 0; j < kSlab; ++j) {
        const int chunk = k + j * kChunkStride;
        const Vec<T, 8> x = group == 0 ? ahead.x[j] : loaded.x[j];
        if constexpr (group == 0) ahead.x[j] = load(rows, 0, next_k, j);
        if (chunk < rows.K) multiply_chunk<group>(slab + j * kChunkElements, rows, x, chunk);
      }
    });
  }

  template <int group>
  __device__ __forceinline__ void multiply_chunk(const T* chunk, const GeneratedRows<T>& rows,
                                                 const Vec<T, 8>& loaded, int k) {
    const Vec<T, 8> x = rows.normalised(loaded, 8 * group + lane() / 4, k + lane() % 4 * 8);
    std::uint32_t a[2][4], b[2][2];
    load_weights(a, chunk);
    std::memcpy(b, &x, sizeof b);
    for (int p = 0; p < 2; ++p) mma_m16n8k16<T>(sums[group], a[p], b[p]);
  }

  // Writes rows 16 * kPart .. 16 * kPart + 15 to `merged`, rows of kMergedStride floats.
  template <int kPart>
  __device__ __forceinline__ void store(float* merged, int count) const {
    for_constants<2>([&]<int half>() {
      if (16 * kPart + 8 * half >= count) return;
      const float(&s)[4] = sums[2 * kPart + half];
      for (int i = 0; i < 4; ++i) {
        const int row = half * 8 + lane() % 4 * 2 + i % 2;
        merged[row * kMergedStride + lane() / 4 + i / 2 * 8] = s[i];
      }
    });
  }
};

// The sums of a warp in fp32: lane 8c + q adds terms 4q .. 4q + 3 of each chunk, for columns 4c ..
// 4c + 3 of all rows.
template <bool kLogits>
struct GeneratedTile<float, kLogits> {
  static constexpr int kRows = 8;
  static constexpr int kLoadedRows = 4;  // at the same time
  static constexpr int kChunkElements = kChunkDepth * kTileColumns;
  static constexpr int kSlab = 1;
  static constexpr int kRing = 4;
  float sums[kRows][4] = {};

  struct Ahead {};  // no registers are left for it
  static __device__ __forceinline__ Ahead load(const GeneratedRows<float>&, int) { return {}; }

  __device__ __forceinline__ void multiply(const float* slab, const GeneratedRows<float>& rows,
                                           Ahead&, int k, int) {
    for (int j = 0; j < kSlab; ++j) {
      const int chunk = k + j * kChunkStride;
      if (chunk >= rows.K) break;
      const int own = chunk + lane() % 8 * 4;
      Vec<float, 4> w[4];
      for (int i = 0; i < 4; ++i)
        w[i] = load_vec<4>(slab + j * kChunkElements + (32 * i + lane()) * 4);
      for_constants<kRows / kLoadedRows>([&]<int i>() {
        constexpr int first = i * kLoadedRows;
        if (first >= rows.count) return;
        Vec<float, 4> x[kLoadedRows];
        for (int r = 0; r < kLoadedRows; ++r) x[r] = rows.load(first + r, own);
        for (int r = 0; r < kLoadedRows; ++r) {
          x[r] = rows.normalised(x[r], first + r, own);
          for (int term = 0; term < 4; ++term) {
            for (int c = 0; c < 4; ++c) {
              float& sum = sums[first + r][c];
              sum = std::fma(x[r][term], kLogits ? w[c][term] : w[term][c], sum);
            }
          }
        }
      });
    }
  }

  // Adds the lanes' sums. In each step a lane passes half of its rows to its partner, and lane q is
  // left with row q.
  template <int>
  __device__ __forceinline__ void store(float* merged, int) {
    for (int half = kRows / 2; half > 0; half /= 2) {
      const bool upper = (lane() & half) != 0;
      for (int r = 0; r < half; ++r) {
        for (int c = 0; c < 4; ++c) {
          const float sent = upper ? sums[r][c] : sums[r + half][c];
          const float kept = upper ? sums[r + half][c] : sums[r][c];
          sums[r][c] = kept + shuffle_xor(sent, half);
        }
      }
    }
    for (int c = 0; c < 4; ++c)
      merged[lane() % 8 * kMergedStride + lane() / 8 * 4 + c] = sums[0][c];
  }
};

}  // namespace llmc::row_kernels
