// Decode attention, split along the keys: one new query per sequence over the keys and values of
// its cache ("flash-decoding", Dao et al. 2023).
//
// A block processes one head of one sequence and 256 keys from a fixed position on: scores, their
// softmax and the weighted sum of values. If a sequence has more than 256 keys, each block writes
// its largest score, its sum of weights and its sums of values to scratch memory, and the block
// that finishes last merges them in the order of the keys. The keys of a block depend only on their
// positions, so the bits of a sequence depend neither on the batch nor on the rows of the cache.
//
// In an INT8 cache, a score is the product of q and codes times the scale of the key, and the
// weight of a key is multiplied by the scale of its value before the codes are.
//
// On a GPU, neighbouring lanes share a key and read neighbouring 16 bytes. In the host executor one
// thread processes one key after the other (block_threads.h).
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/decode_attention_part.h"
#include "llmc/ops/cache_rows.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

// Floats of scratch and int32 of counters that decode_attention needs.
std::int64_t decode_attention_scratch(std::int64_t B, std::int64_t T_max, std::int64_t NH,
                                      std::int64_t HS);
std::int64_t decode_attention_counters(std::int64_t B, std::int64_t NH);

// Writes out (B, C), C = NH * HS: the attention of the token at position[b] of sequence b, whose
// query is row b of q (B, C), over rows 0 .. position[b] of keys and values (B, T_max, C). The
// token's own k and v are already in the cache. position (B) is in device memory, and the caller
// guarantees that it is below T_max. The row of a sequence whose position is negative is not
// written. Other rows of the cache are not read. KV is T, or bf16 or fp16 if T is fp32, or int8
// with scales. `scale` multiplies the scores; 1 / sqrt(HS) if it is not given. Scores and sums are
// fp32.
//
// scratch holds decode_attention_scratch floats and starts at a multiple of 16 bytes. counters
// holds decode_attention_counters int32: the caller sets them to 0 once, and each call leaves them
// 0. The bits of a row depend only on the sequence's q, keys, values and position, not on B or
// T_max.
//
// Throws an Error if the head size is not a multiple of 8 from 8 to 128, if shapes do not match, or
// if a tensor does not start at a multiple of 16 bytes (codes: 8 bytes).
template <class T, class KV>
void decode_attention(Tensor<T, 2> out, In<T, 2> q, InCache<KV> keys, InCache<KV> values,
                      Tensor<const std::int32_t, 1> position, Tensor<float, 1> scratch,
                      Tensor<std::int32_t, 1> counters, std::int64_t NH, Stream& stream,
                      std::optional<float> scale = {});

}  // namespace llmc
