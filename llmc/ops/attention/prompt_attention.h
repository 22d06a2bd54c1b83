// Causal attention of prompts over a key-value cache: checks and choice of the kernel. The queries
// of one launch may belong to several sequences and begin at any position.
#pragma once

#include <cstdint>
#include <optional>

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
// or bf16 or fp16 if T is fp32, or int8 with scales. `scale` multiplies the scores; 1 / sqrt(HS) if
// it is not given. Scores and sums are fp32. Tensor cores
// multiply probabilities, and values of an INT8 cache, rounded to T; so does a CPU that multiplies
// pairs of bf16 (device/words.h), if T and KV are bf16.
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
                      Tensor<const PromptTile, 1> tiles, std::int64_t NH, Stream& stream,
                      std::optional<float> scale = {});

}  // namespace llmc
