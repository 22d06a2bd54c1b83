// The products of generated rows on a GPU. Reading the weights takes the time: a block reads them
// once for up to 32 rows (8 in fp32), and its copies start before the wait for the previous launch.
//
// A block computes tiles of 16 columns. Each of its 8 warps adds every eighth chunk of 32 terms,
// and the warps' sums are added in the order of the warps. Each warp has its own ring of slabs in
// shared memory, so up to 72 KB per block are in flight (64 KB in fp32). All blocks together
// request all weights of an attention or MLP product at once, up to 72 KB per tile: in half
// precision at N = 768 and K = 3072, 48 blocks have 3.5 of 4.7 MB in flight. Narrower tiles would
// not read faster: half of each sector of 32 bytes would be read in vain.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/overlap.h"
#include "llmc/ops/gemm/invariant_gemm_generated_tile.h"
#include "llmc/ops/gemm/invariant_gemm_heads.h"

namespace llmc {

namespace row_kernels {

// Blocks of the logits, of which each computes many tiles: two per multiprocessor of an H100.
inline constexpr std::int64_t kMaxLogitsBlocks = 264;
// Longer norm weights are read from global memory.
inline constexpr std::int64_t kMaxStagedNorm = 2048;

template <class T, bool kLogits>
__host__ __device__ inline int slabs_per_tile(std::int64_t K) {
  return static_cast<int>(ceil_div(K, kChunkStride * GeneratedTile<T, kLogits>::kSlab));
}

// Numbers of elements in the shared memory of a block.
struct GeneratedLayout {
  int ring, norm;
};

template <bool kLogits, class T, class TO, class KV>
__host__ __device__ GeneratedLayout generated_layout(const InvariantGemmCall<T, TO, KV>& call) {
  using Tile = GeneratedTile<T, kLogits>;
  const int slabs = slabs_per_tile<T, kLogits>(call.K);
  const bool staged = call.norm_weight != nullptr && call.K <= kMaxStagedNorm;
  return {(kLogits || slabs > Tile::kRing ? Tile::kRing : slabs) * kWarps * Tile::kSlab *
              Tile::kChunkElements,
          staged ? 2 * static_cast<int>(call.K) : 0};
}

// The weights that the calling warp multiplies: the slabs of the block's tiles, one tile after the
// other, in a ring.
template <class T, bool kLogits>
struct WeightRing {
  using Tile = GeneratedTile<T, kLogits>;
  static constexpr int kSlabElements = Tile::kSlab * Tile::kChunkElements;
  T* memory;  // of this warp: Tile::kRing slabs
  const T* weight;
  int N, K;
  int slabs;  // per tile
  int total;  // of all tiles

  __device__ __forceinline__ T* slab(int q) const {
    return memory + q % Tile::kRing * (kWarps * kSlabElements);
  }
  static __device__ __forceinline__ int column(int tile) {
    return (static_cast<int>(block_y()) + tile * static_cast<int>(grid_y())) * kTileColumns;
  }
  // First term of the warp's slab q; K past the end.
  __device__ __forceinline__ int term(int q) const {
    if (q >= total) return K;
    return q % slabs * Tile::kSlab * kChunkStride + warp_index() * kChunkDepth;
  }
  // Starts the copy of slab q as a group of its own, which is empty past the end.
  __device__ __forceinline__ void start(int q) const {
    T* const chunks = slab(q);
    for (int j = 0, k = term(q); j < Tile::kSlab && k < K; ++j, k += kChunkStride)
      copy_chunk<kLogits>(chunks + j * Tile::kChunkElements, weight, N, K, column(q / slabs), k);
    copy_async_commit();
  }
};

// Copies the norm's weight and bias to shared memory, as a group of asynchronous copies.
template <class T, class TO, class KV>
__device__ __forceinline__ void stage_norm(T* norm, const InvariantGemmCall<T, TO, KV>& call) {
  constexpr int V = kVecSize<T>;
  for (std::int64_t k = thread_index() * V; k < call.K; k += kThreads * V) {
    copy_async_16(norm + k, call.norm_weight + k);
    copy_async_16(norm + call.K + k, call.norm_bias + k);
  }
  copy_async_commit();
}

// Merges the warps' sums of a tile, in the order of the warps, and finishes them. `bias` and
// `early` belong to the calling thread's first sum.
template <bool kLogits, class Tile, class T, class TO, class KV>
__device__ __forceinline__ void finish_tile(Tile& tile, float* merged,
                                            const InvariantGemmCall<T, TO, KV>& call,
                                            std::int64_t first, int count, int column, float bias,
                                            const EpilogueInputs<1>& early) {
  const int row = thread_index() / kTileColumns, c = thread_index() % kTileColumns;
  for_constants<(Tile::kRows + kMergedRows - 1) / kMergedRows>([&]<int part>() {
    if (part * kMergedRows >= count) return;
    tile.template store<part>(merged + warp_index() * kMergedRows * kMergedStride, count);
    block_barrier();
    const int r = part * kMergedRows + row;
    if (r < count && column + c < call.N) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += merged[(w * kMergedRows + row) * kMergedStride + c];
      if constexpr (kLogits) {
        finish_logits<1>(call, first + r, column + c, Floats<1>(sum));
      } else {
        finish_sums<1>(call, first + r, column + c, Floats<1>(sum + bias),
                       part == 0 ? early : epilogue_inputs<1>(call, first + r, column + c));
      }
    }
    block_barrier();
  });
}

}  // namespace row_kernels

// Grid (groups of rows, blocks of tiles): the groups read the same weights at the same time, so all
// but one find them in the L2 cache.
template <class T, class TO, class KV, bool kLogits>
__global__ __launch_bounds__(256,
                             2) void generated_product_kernel(InvariantGemmCall<T, TO, KV> call) {
  using namespace row_kernels;
  static_assert(kThreads == 256);
  using Tile = GeneratedTile<T, kLogits>;
  using Ring = WeightRing<T, kLogits>;
  SharedMemory shared;
  const GeneratedLayout layout = generated_layout<kLogits>(call);
  T* const ring_memory = shared.take<T>(layout.ring);
  float* const merged = shared.take<float>(kWarps * kMergedRows * kMergedStride);
  RowStatistics* const statistics = shared.take<RowStatistics>(Tile::kRows);
  T* const norm = shared.take<T>(layout.norm);

  const bool has_norm = call.norm_weight != nullptr;
  if (layout.norm > 0) {
    stage_norm(norm, call);
  } else {
    copy_async_commit();
  }
  const int slabs = slabs_per_tile<T, kLogits>(call.K);
  const auto tiles =
      static_cast<int>((ceil_div(call.N, kTileColumns) - block_y() + grid_y() - 1) / grid_y());
  const Ring ring{ring_memory + warp_index() * Ring::kSlabElements,
                  call.weight,
                  static_cast<int>(call.N),
                  static_cast<int>(call.K),
                  slabs,
                  slabs * tiles};
  for (int q = 0; q < Tile::kRing; ++q) ring.start(q);
  const std::int64_t first = block_x() * Tile::kRows;
  const auto count = static_cast<int>(call.M - first < Tile::kRows ? call.M - first : Tile::kRows);
  const std::int64_t own_row = first + thread_index() / kTileColumns;
  const std::int64_t own_column = Ring::column(0) + thread_index() % kTileColumns;
  const float bias = column_bias<1>(call, own_column)[0];
  allow_next_launch();
  wait_for_previous_launch();

  EpilogueInputs<1> early;
  if constexpr (!kLogits) {
    // Other rows belong to other blocks, which may write their residual.
    if (own_row < first + count) early = epilogue_inputs<1>(call, own_row, own_column);
  }
  const GeneratedRows<T> rows{call.inp + first * call.K,
                              count,
                              static_cast<int>(call.K),
                              has_norm ? statistics : nullptr,
                              layout.norm > 0 ? norm : call.norm_weight,
                              layout.norm > 0 ? norm + call.K : call.norm_bias};
  if (has_norm) {
    for (int r = warp_index(); r < count; r += kWarps)
      row_statistics<1, 4>(statistics + r, rows.inp + r * call.K, 1, call.K, call.norm_epsilon);
    copy_async_wait<Tile::kRing>();
    block_barrier();
  }
  auto ahead = Tile::load(rows, ring.term(0));  // with a norm, from the L1 cache
  Tile tile;
  for (int q = 0; q < ring.total; ++q) {
    copy_async_wait<Tile::kRing - 1>();
    warp_barrier();  // pieces of other lanes
    tile.multiply(ring.slab(q), rows, ahead, ring.term(q), ring.term(q + 1));
    warp_barrier();
    ring.start(q + Tile::kRing);
    if ((q + 1) % slabs != 0) continue;
    finish_tile<kLogits>(tile, merged, call, first, count, Ring::column(q / slabs), bias, early);
    if constexpr (kIsQuantized<KV>)
      finish_heads(call, block_x(), first, count, Ring::column(q / slabs), kTileColumns);
    tile = {};
  }
}

namespace row_kernels {

template <bool kLogits, class T, class TO, class KV>
void launch_generated(const InvariantGemmCall<T, TO, KV>& call, Stream& stream,
                      std::int64_t max_logits_blocks = kMaxLogitsBlocks) {
  using Tile = GeneratedTile<T, kLogits>;
  const GeneratedLayout layout = generated_layout<kLogits>(call);
  const std::size_t shared_bytes = SharedLayout()
                                       .add<T>(layout.ring)
                                       .template add<float>(kWarps * kMergedRows * kMergedStride)
                                       .template add<RowStatistics>(Tile::kRows)
                                       .template add<T>(layout.norm)
                                       .bytes();
  const std::int64_t tiles = ceil_div(call.N, kTileColumns);
  const std::int64_t blocks = kLogits ? std::min(tiles, max_logits_blocks) : tiles;
  launch_overlapped(generated_product_kernel<T, TO, KV, kLogits>,
                    Grid{ceil_div(call.M, Tile::kRows), blocks, 1}, kThreads, shared_bytes, stream,
                    call);
}

}  // namespace row_kernels

}  // namespace llmc
