// The matrix products of inference, with LayerNorm before and a fused operation after them.
//
// Libraries choose the order of a sum by the number of rows. These products have one order along K
// for every number of rows, so the logits of a sequence do not depend on what shares its batch.
// Sums are fp32. With INT8 weights and rows (ops/quantize.h), sums are exact integers. Each
// function is one launch, except that prompt rows may take a second one for the norm.
//
// inp, weight and out start at multiples of 16 bytes; K is a multiple of 8, and so is N except for
// the logits. Every function throws an Error if a shape or an alignment differs. M may be 0.
#pragma once

#include "llmc/ops/gemm/invariant_gemm_call.h"

namespace llmc {

// out (M, N) = inp · weight + bias.
template <class T>
void invariant_gemm(Tensor<T, 2> out, const InvariantGemm<T>& product, Stream& stream);

// out (M, N) = f(inp · weight + bias), with the activation function f of the product.
template <class T>
void invariant_gemm_activation(Tensor<T, 2> out, const InvariantGemm<T>& product, Stream& stream);

// out (M, N) = residual (M, N) + inp · weight + bias. out may be residual.
template <class T>
void invariant_gemm_add(Tensor<T, 2> out, In<T, 2> residual, const InvariantGemm<T>& product,
                        Stream& stream);

// Memory of invariant_gemm_qkv for an INT8 cache. The caller sets the counters to 0 once, and each
// call leaves them 0.
struct QkvScratch {
  Tensor<float, 1> sums;             // qkv_scratch(M, C) floats
  Tensor<std::int32_t, 1> counters;  // qkv_counters(M, NH)
};
inline std::int64_t qkv_scratch(std::int64_t M, std::int64_t C) {
  return M * 2 * C;
}
inline std::int64_t qkv_counters(std::int64_t M, std::int64_t NH) {
  return M * 2 * NH;  // blocks may have a single row
}

// The product is (M, 3C). Its columns 0 .. C-1 are written to q (M, C); columns C .. 2C-1 of row r
// to row position[r] of sequence slot[r] in keys (slots, T_max, C), and the rest to the same row of
// values. No two rows may have the same slot and position. slot (M) without data: row r belongs to
// sequence r. The caller guarantees that slots and positions exist: they are in device memory.
//
// A cache with KV int8 gets the codes of the fp32 sums, with a scale per head, and needs scratch. A
// head with a number that is not finite has the scale NaN.
template <class T, class KV>
void invariant_gemm_qkv(Tensor<T, 2> q, OutCache<KV> keys, OutCache<KV> values,
                        In<std::int32_t, 1> slot, In<std::int32_t, 1> position,
                        const InvariantGemm<T>& product, Stream& stream,
                        const QkvScratch& scratch = {});

// out (M, N), fp32, = inp · weightᵀ with weight (N, K): the logits. out may have more columns than
// weight has rows; these are not written. Its rows may start at any multiple of 4 bytes. Throws if
// the rows of inp are to be quantized.
template <class T>
void invariant_gemm_logits(Tensor<float, 2> out, const InvariantGemm<T>& product, Stream& stream);

}  // namespace llmc
