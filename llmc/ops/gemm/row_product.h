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

#include <string>

#include "llmc/ops/checks.h"
#include "llmc/ops/gemm/row_product_call.h"
#include "llmc/ops/gemm/row_product_heads.h"
// row_product_cuda.h or row_product_host.h, chosen in llmc/device/target.h
#include LLMC_ROW_PRODUCT_HEADER

namespace llmc {

namespace detail {
inline void require_aligned(const char* name, const void* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 == 0) return;
  fail(std::string("row product: tensor '") + name + "' does not start at a multiple of 16 bytes");
}

// Checks the inputs. N columns are computed.
template <class TO, class KV, class T>
RowProductCall<T, TO, KV> row_product_call(RowEpilogue epilogue, const RowProduct<T>& product,
                                           std::int64_t M, std::int64_t N) {
  const bool logits = epilogue == RowEpilogue::logits;
  const std::int64_t K = product.inp.shape[1];
  require_vector_rows("row product", K);
  if (!logits) require_vector_rows("row product", N);
  check_shape("inp", product.inp, {M, K});
  if (product.codes.codes != nullptr) {
    require(product.codes.K == K && product.codes.N == N,
            "row product: the codes are not those of a weight of " + std::to_string(K) + " by " +
                std::to_string(N));
    require_aligned("codes", product.codes.codes);
  } else if (logits) {
    check_shape("weight", product.weight, {N, K});
  } else {
    check_shape("weight", product.weight, {K, N});
  }
  if (product.bias.data != nullptr) check_shape("bias", product.bias, {N});
  require((product.norm_weight.data == nullptr) == (product.norm_bias.data == nullptr),
          "row product: only one of norm_weight and norm_bias has data");
  if (product.norm_weight.data != nullptr) {
    check_shape("norm_weight", product.norm_weight, {K});
    check_shape("norm_bias", product.norm_bias, {K});
  }
  require_aligned("inp", product.inp.data);
  require_aligned("weight", product.weight.data);
  require_aligned("bias", product.bias.data);
  require_aligned("norm_weight", product.norm_weight.data);
  require_aligned("norm_bias", product.norm_bias.data);
  RowProductCall<T, TO, KV> call;
  call.epilogue = epilogue;
  call.kind = product.kind;
  call.M = M;
  call.N = N;
  call.K = K;
  call.inp = product.inp.data;
  call.norm_weight = product.norm_weight.data;
  call.norm_bias = product.norm_bias.data;
  call.norm_epsilon = product.norm_epsilon;
  call.weight = product.weight.data;
  call.codes = product.codes;
  call.quantizer = product.quantizer;
  call.faults = product.faults;
  call.gelu_factors = product.gelu_factors;
  call.bias = product.bias.data;
  return call;
}

template <class T, class TO, class KV>
void start_row_product(RowProductCall<T, TO, KV> call, Tensor<TO, 2> out, Stream& stream) {
  require_aligned("out", out.data);
  if (call.M == 0 || call.N == 0) return;
  call.out = out.data;
  call.out_stride = out.shape[1];
  const double multiply_adds =
      static_cast<double>(call.M) * static_cast<double>(call.N) * static_cast<double>(call.K);
  count_work({.flops = 2 * multiply_adds}, stream);
  run_row_product(call, stream);
}
}  // namespace detail

// out (M, N) = inp · weight + bias.
template <class T>
void row_product(Tensor<T, 2> out, const RowProduct<T>& product, Stream& stream) {
  const auto call =
      detail::row_product_call<T, T>(RowEpilogue::store, product, out.shape[0], out.shape[1]);
  detail::start_row_product(call, out, stream);
}

// out (M, N) = gelu(inp · weight + bias).
template <class T>
void row_product_gelu(Tensor<T, 2> out, const RowProduct<T>& product, Stream& stream) {
  const auto call =
      detail::row_product_call<T, T>(RowEpilogue::gelu, product, out.shape[0], out.shape[1]);
  detail::start_row_product(call, out, stream);
}

// out (M, N) = residual (M, N) + inp · weight + bias. out may be residual.
template <class T>
void row_product_add(Tensor<T, 2> out, In<T, 2> residual, const RowProduct<T>& product,
                     Stream& stream) {
  auto call = detail::row_product_call<T, T>(RowEpilogue::add, product, out.shape[0], out.shape[1]);
  check_shape("residual", residual, {out.shape[0], out.shape[1]});
  detail::require_aligned("residual", residual.data);
  call.residual = residual.data;
  detail::start_row_product(call, out, stream);
}

// Memory of row_product_qkv for an INT8 cache. The caller sets the counters to 0 once, and each
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
void row_product_qkv(Tensor<T, 2> q, OutCache<KV> keys, OutCache<KV> values,
                     In<std::int32_t, 1> slot, In<std::int32_t, 1> position,
                     const RowProduct<T>& product, const QkvScratch& scratch, Stream& stream) {
  const std::int64_t M = q.shape[0], C = q.shape[1];
  require_vector_rows("row product", C);
  auto call = detail::row_product_call<T, KV>(RowEpilogue::qkv, product, M, 3 * C);
  const auto [slots, T_max, cache_C] = keys.numbers.shape;
  const std::int64_t NH = keys.scales.shape[2];
  check_cache_rows("keys", keys, slots, T_max, C, NH);
  check_cache_rows("values", values, slots, T_max, C, NH);
  if (kIsQuantized<KV>) {
    require(NH > 0 && C % NH == 0 && C / NH % 8 == 0 && C / NH <= kMaxQuantizedHead,
            "row product: " + std::to_string(C) + " channels in " + std::to_string(NH) +
                " heads of an INT8 cache",
            "use a head size that is a multiple of 8, up to 128");
    require_scratch("row product", scratch.sums, qkv_scratch(M, C));
    check_shape("counters", scratch.counters, {scratch.counters.shape[0]});
    require(scratch.counters.shape[0] >= qkv_counters(M, NH),
            "row product: scratch has " + std::to_string(scratch.counters.shape[0]) +
                " counters, " + std::to_string(qkv_counters(M, NH)) + " are needed");
    detail::require_aligned("sums", scratch.sums.data);
  }
  if (slot.data != nullptr) check_shape("slot", slot, {M});
  check_shape("position", position, {M});
  require(slot.data != nullptr || M <= slots, "row product: " + std::to_string(M) +
                                                  " rows without slots for a cache of " +
                                                  std::to_string(slots) + " sequences");
  call.keys = keys.numbers.data;
  call.values = values.numbers.data;
  call.T_max = T_max;
  call.slot = slot.data;
  call.position = position.data;
  call.key_scales = keys.scales.data;
  call.value_scales = values.scales.data;
  call.NH = NH;
  call.head_sums = scratch.sums.data;
  call.head_counters = scratch.counters.data;
  detail::start_row_product(call, q, stream);
}

// The same for a cache that is not quantized, which needs no scratch.
template <class T, class KV>
void row_product_qkv(Tensor<T, 2> q, OutCache<KV> keys, OutCache<KV> values,
                     In<std::int32_t, 1> slot, In<std::int32_t, 1> position,
                     const RowProduct<T>& product, Stream& stream) {
  row_product_qkv<T, KV>(q, keys, values, slot, position, product, {}, stream);
}

// out (M, N), fp32, = inp · weightᵀ with weight (N, K): the logits. out may have more columns than
// weight has rows; these are not written. Its rows may start at any multiple of 4 bytes. Throws if
// the rows of inp are to be quantized.
template <class T>
void row_product_logits(Tensor<float, 2> out, const RowProduct<T>& product, Stream& stream) {
  const bool has_codes = product.codes.codes != nullptr;
  const std::int64_t M = out.shape[0], N = has_codes ? product.codes.N : product.weight.shape[0];
  const auto call = detail::row_product_call<float, T>(RowEpilogue::logits, product, M, N);
  require(product.bias.data == nullptr, "row product: the logits have no bias");
  require(!product.quantizer.enabled, "row product: the input of the logits is not quantized");
  if (out.shape[1] < N) check_shape("out", out, {M, N});
  check_shape("out", out, {M, out.shape[1]});
  detail::start_row_product(call, out, stream);
}

}  // namespace llmc
