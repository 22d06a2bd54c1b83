// Token plus position embedding, of a whole vocabulary or of a slice of it.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/vocabulary_slice.h"

namespace llmc {

// Buckets of batch rows by token in device memory (built on the host, token_buckets.h). Distinct id
// i is token[i], at rows position[start[i]] .. position[start[i+1]-1].
struct TokenBucketsView {
  const std::int32_t* token;     // (count), ascending
  const std::int32_t* start;     // (count + 1)
  const std::int32_t* position;  // (B*T), ascending within a bucket
  std::int64_t count;            // distinct tokens
};

// Writes out (B*T_seq, C): row r = b * T_seq + t is wte[tokens[r] - slice.begin] +
// wpe[first_position[b] + t]. Rows of tokens outside the slice are zeros (-0). The sum of the
// results of ranks with different slices therefore has the bits of one rank with the whole
// vocabulary, in any order of the sum.
//
// tokens (B*T_seq) and first_position (B) are in device memory; a null first_position means 0. Any
// id is allowed. wte has the rows of the slice, and may have more. wpe (at least T_seq, C) is
// whole; the caller guarantees first_position <= rows of wpe - T_seq. C is a multiple of 8.
//
// `scales` has no data, or the scales of the rows of wte (fake_quantize.h): then the tokens are
// quantized, scale * code + wpe with one rounding to fp32 before that to T.
template <class T>
void embedding_forward(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, In<T, 2> wte,
                       In<T, 2> wpe, std::int64_t T_seq, VocabularySlice slice, Stream& stream,
                       const std::int32_t* first_position = nullptr, In<float, 1> scales = {});

// Adds to d_wte (slice.size() or more, C), fp32: row j gets the sum of the rows of d_out (B*T_seq,
// C) that hold token slice.begin + j. `buckets` describes all B*T_seq tokens; tokens outside the
// slice are skipped. Rows of tokens that do not occur do not change. If d_wte has no data (frozen),
// nothing is computed. Deterministic.
template <class T>
void token_embedding_backward(Tensor<float, 2> d_wte, In<T, 2> d_out, TokenBucketsView buckets,
                              VocabularySlice slice, Stream& stream);

// Adds to d_wpe (at least T_seq, C), fp32: row t gets the sum of the rows of d_out that have
// position t. d_out (n, C) holds rows first_row .. first_row + n - 1 of the B*T_seq rows of the
// batch, and row r of the batch has position r % T_seq. n is any number, including 0. Positions
// without a row do not change. If d_wpe has no data (frozen), nothing is computed. Deterministic.
template <class T>
void position_embedding_backward(Tensor<float, 2> d_wpe, In<T, 2> d_out, std::int64_t first_row,
                                 std::int64_t T_seq, Stream& stream);

}  // namespace llmc
