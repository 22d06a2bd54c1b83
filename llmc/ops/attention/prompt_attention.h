// Causal attention of prompts over a key-value cache: checks and choice of the kernel. The queries
// of one launch may belong to several sequences and begin at any position.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/prompt_attention_fma.h"
#include "llmc/ops/attention/prompt_attention_mma.h"
#include "llmc/ops/attention/prompt_attention_tile.h"

namespace llmc {

// Writes the rows of out (R, C), C = NH * HS, that the tiles name: the causal attention of each row
// of q (R, C) over rows 0 .. its position of keys and values (slots, T_max, C) of its slot. The
// tokens' own k and v are already in the cache. Other rows of out are not written, and rows of the
// cache after the last position of a tile are not read. tiles are in device memory; the caller
// guarantees that their rows, slots and positions exist and that no row is in two tiles. KV is T,
// or bf16 or fp16 if T is fp32, or int8 with scales. Scores and sums are fp32. Tensor cores
// multiply probabilities, and values of an INT8 cache, rounded to T.
//
// The bits of a row depend only on its q, its position, and the keys and values that it sees: not
// on where the prompt was cut into tiles, nor on other tiles or later tokens of its own tile, even
// if those have infinities or NaNs. If a value that a row sees is not finite, neither are the row's
// results in that column; whether they are infinite or NaN may depend on the tiles.
//
// Throws an Error if the head size is not a multiple of 8 from 8 to 128, if shapes do not match, or
// if a tensor other than tiles does not start at a multiple of 16 bytes (codes: 8 bytes).
template <class T, class KV>
void prompt_attention(Tensor<T, 2> out, In<T, 2> q, InCache<KV> keys, InCache<KV> values,
                      Tensor<const PromptTile, 1> tiles, std::int64_t NH, Stream& stream) {
  static_assert(kIsCacheOf<T, KV>);
  const auto [slots, T_max, cache_C] = keys.numbers.shape;
  const AttentionShape shape = check_attention(
      "out", make_tensor(out.data, std::int64_t{1}, out.shape[0], out.shape[1]), NH);
  const std::int64_t C = shape.C();
  check_shape("q", q, {shape.T, C});
  check_alignment("q", q.data);
  check_cache_rows("keys", keys, slots, T_max, C, NH);
  check_cache_rows("values", values, slots, T_max, C, NH);
  require(T_max <= kMaxAttentionTime,
          "prompt_attention: the cache has more than 2^24 rows per sequence");
  const PromptTensors<T, KV> tensors{out.data,
                                     q.data,
                                     keys.numbers.data,
                                     values.numbers.data,
                                     keys.scales.data,
                                     values.scales.data,
                                     tiles.data,
                                     T_max,
                                     C,
                                     static_cast<int>(shape.HS),
                                     attention_scale(shape.HS) * kLog2E};
  if constexpr (std::is_same_v<T, float> || kOneThreadBlocks) {
    launch_prompt_attention_fma(tensors, tiles.shape[0], NH, stream);
  } else {
    launch_prompt_attention_mma(tensors, tiles.shape[0], NH, stream);
  }
}

}  // namespace llmc
