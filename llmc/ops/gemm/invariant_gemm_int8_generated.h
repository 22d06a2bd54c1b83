// The products of generated rows with INT8 weights on a GPU. Reading the weights takes the time: a
// lane's loads of 16 bytes start before the wait for the previous launch, up to 6 per lane (24 KB
// per block; 4 for the logits) at the same time.
//
// As in invariant_gemm_generated.h, a block computes tiles of 16 columns, its 8 warps share the
// terms (each has every eighth chunk), and their sums are added in the order of the warps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/base/error.h"
#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/gemm/invariant_gemm_generated_tile.h"
#include "llmc/ops/gemm/invariant_gemm_heads.h"
#include "llmc/ops/gemm/invariant_gemm_int8_parts.h"

namespace llmc {

namespace row_kernels {

// Blocks of the logits, of which each computes many tiles: two per multiprocessor of an H100.
inline constexpr std::int64_t kMaxCodeLogitsBlocks = 264;

// Most rows of a block.
template <class S>
inline constexpr int kMaxCodeRows = std::is_same_v<S, float> ? 8 : 32;

// Parts of rows that have a range of their own.
inline constexpr int kMaxRanges = kMaxCodeRows<std::int8_t>;

// The chunks of the calling warp, in slabs of kSlab chunks: those of the block's tiles, one tile
// after the other.
template <int kSlab>
struct CodeStream {
  CodeMatrix weight;
  int chunks;  // of a tile
  int tiles;   // of the block

  __device__ __forceinline__ CodeStream(const CodeMatrix& weight)
      : weight(weight),
        chunks(static_cast<int>(weight.depth_chunks())),
        tiles(static_cast<int>((ceil_div(weight.N, kCodeColumns) - block_y() + grid_y() - 1) /
                               grid_y())) {}

  __device__ __forceinline__ int slabs_per_tile() const {
    return (chunks + kSlab * kWarps - 1) / (kSlab * kWarps);
  }
  __device__ __forceinline__ std::int64_t tile(int i) const { return block_y() + i * grid_y(); }
  // Chunk j of slab s of a tile; `chunks` or more: none.
  __device__ __forceinline__ int chunk(int s, int j) const {
    return (s * kSlab + j) * kWarps + warp_index();
  }
  __device__ __forceinline__ ChunkCodes load(int i, int s, int j) const {
    const int own = chunk(s, j);
    if (i >= tiles || own >= chunks) return {};
    return load_chunk(weight.columns(tile(i)) + own * kCodeChunk);
  }
};

// Stages `count` rows from `first` on. Few rows are divided among the warps, which agree on the
// range of a row by `ranges`.
template <class S, class T, class TO, class KV>
__device__ __forceinline__ void stage_rows(S* staged, RowReading* readings, ValueRange* ranges,
                                           const InvariantGemmCall<T, TO, KV>& call,
                                           std::int64_t first, int count) {
  constexpr bool kQuantizes = std::is_same_v<S, std::int8_t>;
  const int parts = count <= 1 ? kWarps : count <= 2 ? kWarps / 2 : count <= 4 ? kWarps / 4 : 1;
  const int part = warp_index() % parts, stride = staged_stride(static_cast<int>(call.K));
  const auto for_own_rows = [&](const auto& f) {
    for (int row = warp_index() / parts; row < count; row += kWarps / parts) f(row);
  };
  for_own_rows([&](int row) {
    const RowStatistics statistics = statistics_of(call, first + row);
    if (part == 0 && lane() == 0) readings[row] = {statistics, {}};
    if constexpr (kQuantizes) {
      const ValueRange range = range_of(call, first + row, statistics, part, parts);
      if (lane() == 0) ranges[row * parts + part] = range;
    }
  });
  block_barrier();
  for_own_rows([&](int row) {
    RowReading reading{readings[row].statistics, {}};
    const bool is_leader = part == 0 && lane() == 0;
    if constexpr (kQuantizes) {
      ValueRange range;
      for (int i = 0; i < parts; ++i) range = range.merged(ranges[row * parts + i]);
      reading.quantization = quantization_of(call, first + row, range, is_leader && block_y() == 0);
      if (is_leader) readings[row].quantization = reading.quantization;
    }
    S* const out = staged + row * stride;
    const auto store = [&](std::int64_t k, const Vec<T, 8>& x) {
      store_vec(out + k, staged_numbers<S>(call, reading, x, k));
    };
    for_lane_numbers<8>(call.inp + (first + row) * call.K, call.K, store, part, parts);
    const std::int64_t padding = call.K + lane() * 8;
    if (part == 0 && padding < round_up(call.K, kCodeDepth)) store_vec(out + padding, Vec<S, 8>{});
  });
}

// Merges the warps' sums of a tile, in the order of the warps, and finishes them.
template <bool kLogits, class S, int kGroups, class Sum, int kSums, class T, class TO, class KV>
__device__ __forceinline__ void finish_code_tile(const Sum (&sums)[kGroups][kSums], Sum* merged,
                                                 const RowReading* readings,
                                                 const InvariantGemmCall<T, TO, KV>& call,
                                                 std::int64_t first, int count,
                                                 std::int64_t column) {
  const int row = thread_index() / kTileColumns, c = thread_index() % kTileColumns;
  for_constants<(kGroups + 1) / 2>([&]<int part>() {
    if (part * kMergedRows >= count) return;
    Sum* const own = merged + warp_index() * kMergedRows * kMergedStride;
    for_constants<2>([&]<int half>() {
      constexpr int group = 2 * part + half;
      if constexpr (group < kGroups) {
        CodeFragment<S>::for_each(sums[group], [&](int r, int j, Sum sum) {
          own[(half * 8 + r) * kMergedStride + j] = sum;
        });
      }
    });
    block_barrier();
    const int r = part * kMergedRows + row;
    if (r < count && column + c < call.N) {
      Vec<Sum, 1> sum{};
      for (int w = 0; w < kWarps; ++w)
        sum[0] += merged[(w * kMergedRows + row) * kMergedStride + c];
      finish_code_sums<kLogits, 1>(call, first + r, column + c, sum, readings[r].quantization,
                                   epilogue_inputs<1>(call, first + r, column + c));
    }
    block_barrier();
  });
}

}  // namespace row_kernels

// Grid (groups of rows, blocks of tiles). Blocks have rows_per_block rows.
template <class S, bool kLogits, class T, class TO, class KV>
__global__ __launch_bounds__(256, 2) void generated_code_kernel(InvariantGemmCall<T, TO, KV> call,
                                                                int rows_per_block) {
  using namespace row_kernels;
  using Fragment = CodeFragment<S>;
  using Sum = typename Fragment::Sum;
  constexpr int kSlab = kLogits ? 4 : 6, kGroups = kMaxCodeRows<S> / 8;
  const int K = static_cast<int>(call.K), stride = staged_stride(K);
  SharedMemory shared;
  S* const staged = shared.take<S>(rows_per_block * stride);
  Sum* const merged = shared.take<Sum>(kWarps * kMergedRows * kMergedStride);
  RowReading* const readings = shared.take<RowReading>(rows_per_block);
  ValueRange* const ranges = shared.take<ValueRange>(kMaxRanges);

  const CodeStream<kSlab> weights(call.codes);
  ChunkCodes ahead[kSlab];
  for_constants<kSlab>([&]<int j>() { ahead[j] = weights.load(0, 0, j); });
  allow_next_launch();
  wait_for_previous_launch();

  const std::int64_t first = block_x() * rows_per_block;
  const auto count =
      static_cast<int>(call.M - first < rows_per_block ? call.M - first : rows_per_block);
  stage_rows(staged, readings, ranges, call, first, count);
  block_barrier();
  const int slabs = weights.slabs_per_tile();
  for (int i = 0; i < weights.tiles; ++i) {
    Sum sums[kGroups][Fragment::kSums] = {};
    for (int s = 0; s < slabs; ++s) {
      const bool is_last = s + 1 == slabs;
      for_constants<kSlab>([&]<int j>() {
        const Fragment fragment(ahead[j]);
        ahead[j] = weights.load(is_last ? i + 1 : i, is_last ? 0 : s + 1, j);
        const int chunk = weights.chunk(s, j);
        if (chunk >= weights.chunks) return;
        for_constants<kGroups>([&]<int group>() {
          if (8 * group >= count) return;
          const StagedRows<S> rows{staged + 8 * group * stride, stride, count - 8 * group};
          fragment.add(sums[group], [&](int row) { return rows.load(row, chunk * kCodeDepth); });
        });
      });
    }
    finish_code_tile<kLogits, S>(sums, merged, readings, call, first, count,
                                 weights.tile(i) * kTileColumns);
    if constexpr (kIsQuantized<KV> && !kLogits)
      finish_heads(call, block_x(), first, count, static_cast<int>(weights.tile(i)) * kTileColumns,
                   kTileColumns);
  }
}

namespace row_kernels {

// Rows of a block. If 8 rows leave room for a second block on a multiprocessor, so do more.
template <class S>
std::int64_t code_rows_per_block(std::int64_t M, std::int64_t K) {
  constexpr std::int64_t kHalf = 48 * 1024, kWhole = 80 * 1024;
  const std::int64_t bytes = staged_stride(static_cast<int>(K)) * std::int64_t{sizeof(S)};
  std::int64_t rows = (8 * bytes <= kHalf ? kHalf : kWhole) / bytes;
  require(rows > 0, "invariant GEMM: too many terms, " + std::to_string(K) + ", for INT8 weights");
  if (rows >= 8) rows = rows / 8 * 8;
  return std::min<std::int64_t>({rows, kMaxCodeRows<S>, M});
}

template <bool kLogits, class T, class TO, class KV>
void launch_generated_codes(const InvariantGemmCall<T, TO, KV>& call, Stream& stream,
                            std::int64_t max_logits_blocks = kMaxCodeLogitsBlocks) {
  with_staged_type<kLogits>(call, [&]<class S>() {
    using Sum = typename CodeFragment<S>::Sum;
    const std::int64_t rows = code_rows_per_block<S>(call.M, call.K);
    const std::size_t shared_bytes = SharedLayout()
                                         .add<S>(rows * staged_stride(static_cast<int>(call.K)))
                                         .template add<Sum>(kWarps * kMergedRows * kMergedStride)
                                         .template add<RowReading>(rows)
                                         .template add<ValueRange>(kMaxRanges)
                                         .bytes();
    const std::int64_t tiles = ceil_div(call.N, kCodeColumns);
    const std::int64_t blocks = kLogits ? std::min(tiles, max_logits_blocks) : tiles;
    launch_overlapped(generated_code_kernel<S, kLogits, T, TO, KV>,
                      Grid{ceil_div(call.M, rows), blocks, 1}, kThreads, shared_bytes, stream, call,
                      static_cast<int>(rows));
  });
}

}  // namespace row_kernels

}  // namespace llmc
