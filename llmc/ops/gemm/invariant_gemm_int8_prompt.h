// The products of prompt rows with INT8 weights on a GPU. A block computes a tile of 64 rows. Its
// rows pass through shared memory in stages of 64 terms, converted on the way (to codes, in w8a8);
// weights go directly to the registers of the warps that multiply them. Both are read one stage
// ahead. Every sum of float rows adds its terms in ascending order of k, 16 at a time.
//
// In fp32 with float rows, prompts take the kernel of generated rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/attention/attention_tiles.h"
#include "llmc/ops/gemm/invariant_gemm_int8_generated.h"
#include "llmc/ops/gemm/invariant_gemm_int8_parts.h"

namespace llmc {

namespace row_kernels {

// Two rows of warps, and a column of warps per 32 columns. A warp computes 32 rows and 32 columns.
template <class S, int kColumns_>
struct CodePromptTile {
  using Fragment = CodeFragment<S>;
  using Sum = typename Fragment::Sum;
  static constexpr int kRows = 64, kColumns = kColumns_;
  static constexpr int kThreads = 2 * kColumns;
  static constexpr int kMinBlocks = kColumns <= 64 ? 3 : 2;
  static constexpr int kDepth = 64;  // terms of a stage
  static constexpr int kChunks = kDepth / kCodeDepth;
  static constexpr int kStride = kDepth + 32;  // no bank conflicts, as with staged_stride
  static constexpr int kStage = kRows * kStride;
  static constexpr int kSumStride = kColumns + 4;
  static constexpr int kPieces = kDepth / 8;  // of a row
  static constexpr int kOwnPieces = kRows * kPieces / kThreads;
  Sum sums[2][4][Fragment::kSums] = {};

  static __device__ __forceinline__ int first_row() { return lane_part(32, 2) * 32; }
  static __device__ __forceinline__ int first_column() { return lane_part(64, kColumns / 32) * 32; }

  // The weights of a stage: chunks of each of the warp's two groups of columns.
  struct Weights {
    ChunkCodes chunks[2][kChunks];
  };
  static __device__ __forceinline__ Weights load_weights(const CodeMatrix& weight,
                                                         std::int64_t column, int stage) {
    Weights w;
    const std::int64_t first = (column + first_column()) / kCodeColumns;
    for (int c = 0; c < 2; ++c) {
      for (int j = 0; j < kChunks; ++j) {
        const int chunk = stage * kChunks + j;
        if ((first + c) * kCodeColumns < weight.N && chunk < weight.depth_chunks())
          w.chunks[c][j] = load_chunk(weight.columns(first + c) + chunk * kCodeChunk);
      }
    }
    return w;
  }

  __device__ __forceinline__ void multiply(const S* stage, const Weights& w, int valid_rows) {
    if (first_row() >= valid_rows) return;
    for_constants<kChunks>([&]<int j>() {
      const Fragment fragments[2] = {Fragment(w.chunks[0][j]), Fragment(w.chunks[1][j])};
      for_constants<4>([&]<int group>() {
        const StagedRows<S> rows{stage + (first_row() + 8 * group) * kStride, kStride, 8};
        const auto x = rows.load(lane() / 4, j * kCodeDepth);
        for (int c = 0; c < 2; ++c) fragments[c].add(sums[c][group], [&](int) { return x; });
      });
    });
  }

  // Writes the sums to shared memory (kRows, kSumStride).
  __device__ __forceinline__ void store(Sum* out) const {
    for_constants<8>([&]<int i>() {
      Fragment::for_each(sums[i / 4][i % 4], [&](int row, int column, Sum sum) {
        out[(first_row() + i % 4 * 8 + row) * kSumStride + first_column() + i / 4 * 16 + column] =
            sum;
      });
    });
  }
};

// The pieces of 8 numbers of a stage that the calling thread converts.
template <class Tile, class T>
struct PromptPieces {
  Vec<T, 8> x[Tile::kOwnPieces];

  // Calls f(index, row, k) for those that exist, and otherwise missing(row, k).
  template <class F, class G>
  static __device__ __forceinline__ void for_each(int stage, int valid_rows, std::int64_t K,
                                                  const F& f, const G& missing) {
    for (int i = 0; i < Tile::kOwnPieces; ++i) {
      const auto piece = static_cast<unsigned>(thread_index() + i * Tile::kThreads);
      const int row = static_cast<int>(piece / Tile::kPieces);
      const int k = stage * Tile::kDepth + static_cast<int>(piece % Tile::kPieces) * 8;
      if (row < valid_rows && k < K) {
        f(i, row, k);
      } else {
        missing(row, k);
      }
    }
  }
  __device__ __forceinline__ void load(const T* inp, int stage, int valid_rows, std::int64_t K) {
    for_each(
        stage, valid_rows, K, [&](int i, int row, int k) { x[i] = load_vec<8>(inp + row * K + k); },
        [](int, int) {});
  }
  template <class S, class Call>
  __device__ __forceinline__ void store(S* memory, const Call& call, const RowReading* readings,
                                        int stage, int valid_rows) const {
    const auto place = [&](int row, int k) {
      return memory + row * Tile::kStride + (k - stage * Tile::kDepth);
    };
    for_each(
        stage, valid_rows, call.K,
        [&](int i, int row, int k) {
          store_vec(place(row, k), staged_numbers<S>(call, readings[row], x[i], k));
        },
        [&](int row, int k) { store_vec(place(row, k), Vec<S, 8>{}); });
  }
};

}  // namespace row_kernels

// Grid (tiles of columns, tiles of rows).
template <class S, class Tile, bool kLogits, class T, class TO, class KV>
__global__ __launch_bounds__(Tile::kThreads, Tile::kMinBlocks) void prompt_code_kernel(
    InvariantGemmCall<T, TO, KV> call) {
  using namespace row_kernels;
  using Sum = typename Tile::Sum;
  constexpr int V = 4, kWarpsOfTile = Tile::kThreads / 32;
  SharedMemory shared;
  S* const memory = shared.take<S>(2 * Tile::kStage);
  Sum* const sums = shared.take<Sum>(Tile::kRows * Tile::kSumStride);
  RowReading* const readings = shared.take<RowReading>(Tile::kRows);
  const std::int64_t first = block_y() * Tile::kRows, column = block_x() * Tile::kColumns;
  const auto rows = static_cast<int>(call.M - first < Tile::kRows ? call.M - first : Tile::kRows);
  const auto stages = static_cast<int>(ceil_div(call.K, Tile::kDepth));
  auto weights = Tile::load_weights(call.codes, column, 0);
  allow_next_launch();
  wait_for_previous_launch();

  for (int r = warp_index(); r < rows; r += kWarpsOfTile) {
    RowReading reading{statistics_of(call, first + r), {}};
    if constexpr (std::is_same_v<S, std::int8_t>) {
      reading.quantization =
          quantization_of(call, first + r, range_of(call, first + r, reading.statistics),
                          block_x() == 0 && lane() == 0);
    }
    if (lane() == 0) readings[r] = reading;
  }
  PromptPieces<Tile, T> pieces;
  const T* const inp = call.inp + first * call.K;
  pieces.load(inp, 0, rows, call.K);
  block_barrier();
  pieces.store(memory, call, readings, 0, rows);
  block_barrier();
  Tile tile;
  for (int s = 0; s < stages; ++s) {
    pieces.load(inp, s + 1, rows, call.K);
    const auto next = Tile::load_weights(call.codes, column, s + 1);
    tile.multiply(memory + s % 2 * Tile::kStage, weights, rows);
    weights = next;
    if (s + 1 < stages)
      pieces.store(memory + (s + 1) % 2 * Tile::kStage, call, readings, s + 1, rows);
    block_barrier();
  }
  tile.store(sums);
  block_barrier();
  for (int i = thread_index(); i < Tile::kRows * Tile::kColumns / V; i += Tile::kThreads) {
    const int r = i / (Tile::kColumns / V), c = i % (Tile::kColumns / V) * V;
    if (r >= rows || column + c >= call.N) continue;
    finish_code_sums<kLogits, V>(
        call, first + r, column + c, load_vec<V>(sums + r * Tile::kSumStride + c),
        readings[r].quantization, epilogue_inputs<V>(call, first + r, column + c));
  }
  if constexpr (kIsQuantized<KV> && !kLogits) {
    block_barrier();  // the block's sums are written
    finish_heads(call, block_y(), first, rows, static_cast<int>(column), Tile::kColumns);
  }
}

namespace row_kernels {

template <class S, class Tile, bool kLogits, class T, class TO, class KV>
void launch_prompt_code_tile(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  constexpr std::size_t kSharedBytes =
      SharedLayout()
          .add<S>(2 * Tile::kStage)
          .template add<typename Tile::Sum>(Tile::kRows * Tile::kSumStride)
          .template add<RowReading>(Tile::kRows)
          .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
  launch_overlapped(prompt_code_kernel<S, Tile, kLogits, T, TO, KV>,
                    Grid{ceil_div(call.N, Tile::kColumns), ceil_div(call.M, Tile::kRows), 1},
                    Tile::kThreads, kSharedBytes, stream, call);
}

// Products with at least this many columns, and the logits, have wide tiles, which convert half as
// many rows.
inline constexpr std::int64_t kMinWideCodeColumns = 2048;

template <bool kLogits, class T, class TO, class KV>
void launch_prompt_codes(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  with_staged_type<kLogits>(call, [&]<class S>() {
    if constexpr (std::is_same_v<S, float>) {
      launch_generated_codes<kLogits>(call, stream);
    } else if constexpr (kLogits) {
      launch_prompt_code_tile<S, CodePromptTile<S, 128>, kLogits>(call, stream);
    } else {
      if (call.N >= kMinWideCodeColumns)
        return launch_prompt_code_tile<S, CodePromptTile<S, 128>, kLogits>(call, stream);
      launch_prompt_code_tile<S, CodePromptTile<S, 64>, kLogits>(call, stream);
    }
  });
}

}  // namespace row_kernels

}  // namespace llmc
