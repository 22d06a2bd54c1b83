// How keys and values of a cache reach the shared memory of prompt_attention_mma.h: in two stages
// of tiles, of which one is filled while the other one is used.
//
// Numbers of type Element are copied asynchronously. Codes pass through registers, because they
// become numbers of type Element on the way: keys exactly, as integers, so that a score is
// multiplied by the scale of its key; values times their scales, rounded. (The probabilities times
// these scales would be below the normal numbers of fp16.)
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/attention/attention_tiles.h"
#include "llmc/ops/attention/prompt_attention_tile.h"

namespace llmc {

template <class Element, class KV, int kHeadTile>
struct CacheStages {
  static constexpr int kThreads = 128;
  static constexpr int kKeys = 64;
  using Tile = SharedTile<Element, kKeys, kHeadTile>;
  static constexpr int kScales = 0;

  Element* key_memory;
  Element* value_memory;
  const KV* key_rows;  // row 0 of the slot and head
  const KV* value_rows;
  std::int64_t stride;
  int num_keys, HS;

  __device__ explicit CacheStages(SharedMemory& shared)
      : key_memory(shared.take<Element>(2 * Tile::kElements)),
        value_memory(shared.take<Element>(2 * Tile::kElements)) {}

  // The block's head of a slot, of which the first num_keys rows are read.
  __device__ __forceinline__ void select(const PromptTensors<Element, KV>& tensors,
                                         std::int64_t slot, int num_keys_) {
    const std::int64_t first = slot * tensors.T_max * tensors.C + block_y() * tensors.HS;
    key_rows = tensors.keys + first;
    value_rows = tensors.values + first;
    stride = tensors.C;
    num_keys = num_keys_;
    HS = tensors.HS;
  }
  __device__ __forceinline__ Tile keys(int stage) const {
    return {key_memory + stage * Tile::kElements};
  }
  __device__ __forceinline__ Tile values(int stage) const {
    return {value_memory + stage * Tile::kElements};
  }
  // A block calls these four in this order for each tile, with work on other tiles in between:
  // start to load the rows of keys from k0 on; then those of values; then finish; then wait, after
  // which the calling thread's part of the stage is in shared memory.
  __device__ __forceinline__ void start_keys(int k0, int stage) {
    const std::int64_t first = k0 * stride;
    load_tile_async<kThreads>(keys(stage), key_rows + first, stride, num_keys - k0, HS);
    load_tile_async<kThreads>(values(stage), value_rows + first, stride, num_keys - k0, HS);
    copy_async_commit();
  }
  __device__ __forceinline__ void start_values(int, int) {}
  __device__ __forceinline__ void finish_values(int) {}
  __device__ __forceinline__ void wait() { copy_async_wait<0>(); }
  // Multiplies scores by the scales of their keys.
  __device__ __forceinline__ void scale_scores(Accumulator (&)[kKeys / 8], int) const {}
};

template <class Element, int kHeadTile>
struct CacheStages<Element, std::int8_t, kHeadTile> {
  static constexpr int kThreads = 128;
  static constexpr int kKeys = 64;
  using Tile = SharedTile<Element, kKeys, kHeadTile>;
  static constexpr int kScales = 2 * kKeys;
  static constexpr int kPieces = kKeys * Tile::kChunks / kThreads;  // of 8 codes, per thread

  Element* key_memory;
  Element* value_memory;
  float* scale_memory;  // of keys
  const std::int8_t* key_rows;
  const std::int8_t* value_rows;
  const float* key_scales;
  const float* value_scales;
  std::int64_t stride, scale_stride;
  int num_keys, HS;
  Vec<std::int8_t, 8> codes[kPieces];  // the next keys or values
  float scale[kPieces];

  __device__ explicit CacheStages(SharedMemory& shared)
      : key_memory(shared.take<Element>(2 * Tile::kElements)),
        value_memory(shared.take<Element>(2 * Tile::kElements)),
        scale_memory(shared.take<float>(kScales)) {}

  __device__ __forceinline__ void select(const PromptTensors<Element, std::int8_t>& tensors,
                                         std::int64_t slot, int num_keys_) {
    const std::int64_t row = slot * tensors.T_max;
    key_rows = tensors.keys + row * tensors.C + block_y() * tensors.HS;
    value_rows = tensors.values + row * tensors.C + block_y() * tensors.HS;
    key_scales = tensors.key_scales + row * grid_y() + block_y();
    value_scales = tensors.value_scales + row * grid_y() + block_y();
    stride = tensors.C;
    scale_stride = grid_y();
    num_keys = num_keys_;
    HS = tensors.HS;
  }
  __device__ __forceinline__ Tile keys(int stage) const {
    return {key_memory + stage * Tile::kElements};
  }
  __device__ __forceinline__ Tile values(int stage) const {
    return {value_memory + stage * Tile::kElements};
  }
  __device__ __forceinline__ void start_keys(int k0, int) {
    load(key_rows, k0);
    const int row = k0 + thread_index() % kKeys;
    scale[0] = row < num_keys ? key_scales[row * scale_stride] : 0;
  }
  // Ends the work on keys, whose registers values use from then on.
  __device__ __forceinline__ void start_values(int k0, int stage) {
    for_each_piece([&](int p, int row, int chunk) {
      store_vec(keys(stage).chunk(row, chunk), from_floats<Element>(to_floats(codes[p])));
    });
    if (thread_index() < kKeys) scale_memory[stage * kKeys + thread_index()] = scale[0];
    load(value_rows, k0);
    for_each_piece([&](int p, int row, int) {
      scale[p] = k0 + row < num_keys ? value_scales[(k0 + row) * scale_stride] : 0;
    });
  }
  __device__ __forceinline__ void finish_values(int stage) {
    for_each_piece([&](int p, int row, int chunk) {
      store_vec(values(stage).chunk(row, chunk),
                from_floats<Element>(scale[p] * to_floats(codes[p])));
    });
  }
  __device__ __forceinline__ void wait() {}
  __device__ __forceinline__ void scale_scores(Accumulator (&scores)[kKeys / 8], int stage) const {
    for (int n = 0; n < kKeys / 8; ++n) {
      const auto pair = load_vec<2>(scale_memory + stage * kKeys + 8 * n + tile_column());
      for (int i = 0; i < 4; ++i) scores[n].v[i] *= pair[i % 2];
    }
  }

 private:
  // Calls f(p, row, chunk) for the calling thread's pieces.
  template <class F>
  __device__ __forceinline__ static void for_each_piece(const F& f) {
    for (int p = 0; p < kPieces; ++p) {
      const auto i = static_cast<unsigned>(thread_index() + p * kThreads);
      f(p, static_cast<int>(i / Tile::kChunks), static_cast<int>(i % Tile::kChunks));
    }
  }
  // Codes of rows and columns that do not exist are 0.
  __device__ __forceinline__ void load(const std::int8_t* rows, int k0) {
    for_each_piece([&](int p, int row, int chunk) {
      codes[p] = {};
      if (k0 + row < num_keys && chunk * 8 < HS)
        codes[p] = load_vec<8>(rows + (k0 + row) * stride + chunk * 8);
    });
  }
};

// The sizes of a block: 64 queries, and stages of 64 keys.
template <class Element, class KV, int kHeadTile>
struct PromptTiling {
  using Stages = CacheStages<Element, KV, kHeadTile>;
  static constexpr int kThreads = Stages::kThreads;
  static constexpr int kKeys = Stages::kKeys;
  using QueryTile = SharedTile<Element, kPromptTileRows, kHeadTile>;
  static constexpr std::size_t kSharedBytes =
      SharedLayout()
          .add<Element>(QueryTile::kElements)
          .template add<Element>(2 * Stages::Tile::kElements)
          .template add<Element>(2 * Stages::Tile::kElements)
          .template add<float>(Stages::kScales)
          .bytes();
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

}  // namespace llmc
