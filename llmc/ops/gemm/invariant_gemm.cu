#include <string>

#include "llmc/ops/checks.h"
#include "llmc/ops/gemm/invariant_gemm.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/gemm/invariant_gemm_checks.h"
#include "llmc/ops/gemm/invariant_gemm_heads.h"
#include "llmc/ops/instantiate.h"
// invariant_gemm_cuda.h or invariant_gemm_host.h, chosen in llmc/device/target.h
#include LLMC_INVARIANT_GEMM_HEADER

namespace llmc {

namespace detail {

template <class T, class TO, class KV>
void start_invariant_gemm(InvariantGemmCall<T, TO, KV> call, Tensor<TO, 2> out, Stream& stream) {
  require_aligned("out", out.data);
  if (call.M == 0 || call.N == 0) return;
  call.out = out.data;
  call.out_stride = out.shape[1];
  const double multiply_adds =
      static_cast<double>(call.M) * static_cast<double>(call.N) * static_cast<double>(call.K);
  count_work({.flops = 2 * multiply_adds}, stream);
  run_invariant_gemm(call, stream);
}
}  // namespace detail

template <class T>
void invariant_gemm(Tensor<T, 2> out, const InvariantGemm<T>& product, Stream& stream) {
  const auto call =
      detail::invariant_gemm_call<T, T>(RowEpilogue::store, product, out.shape[0], out.shape[1]);
  detail::start_invariant_gemm(call, out, stream);
}

template <class T>
void invariant_gemm_activation(Tensor<T, 2> out, const InvariantGemm<T>& product, Stream& stream) {
  const auto call = detail::invariant_gemm_call<T, T>(RowEpilogue::activation, product,
                                                      out.shape[0], out.shape[1]);
  detail::start_invariant_gemm(call, out, stream);
}

template <class T>
void invariant_gemm_add(Tensor<T, 2> out, In<T, 2> residual, const InvariantGemm<T>& product,
                        Stream& stream) {
  auto call =
      detail::invariant_gemm_call<T, T>(RowEpilogue::add, product, out.shape[0], out.shape[1]);
  check_shape("residual", residual, {out.shape[0], out.shape[1]});
  detail::require_aligned("residual", residual.data);
  call.residual = residual.data;
  detail::start_invariant_gemm(call, out, stream);
}

template <class T, class KV>
void invariant_gemm_qkv(Tensor<T, 2> q, OutCache<KV> keys, OutCache<KV> values,
                        In<std::int32_t, 1> slot, In<std::int32_t, 1> position,
                        const InvariantGemm<T>& product, Stream& stream,
                        const QkvScratch& scratch) {
  const std::int64_t M = q.shape[0], C = q.shape[1];
  require_vector_rows("invariant GEMM", C);
  auto call = detail::invariant_gemm_call<T, KV>(RowEpilogue::qkv, product, M, 3 * C);
  const auto [slots, T_max, cache_C] = keys.numbers.shape;
  const std::int64_t NH = keys.scales.shape[2];
  check_cache_rows("keys", keys, slots, T_max, C, NH);
  check_cache_rows("values", values, slots, T_max, C, NH);
  if (kIsQuantized<KV>) {
    require(NH > 0 && C % NH == 0 && C / NH % 8 == 0 && C / NH <= kMaxQuantizedHead,
            "invariant GEMM: " + std::to_string(C) + " channels in " + std::to_string(NH) +
                " heads of an INT8 cache",
            "use a head size that is a multiple of 8, up to 128");
    require_scratch("invariant GEMM", scratch.sums, qkv_scratch(M, C));
    check_shape("counters", scratch.counters, {scratch.counters.shape[0]});
    require(scratch.counters.shape[0] >= qkv_counters(M, NH),
            "invariant GEMM: scratch has " + std::to_string(scratch.counters.shape[0]) +
                " counters, " + std::to_string(qkv_counters(M, NH)) + " are needed");
    detail::require_aligned("sums", scratch.sums.data);
  }
  if (slot.data != nullptr) check_shape("slot", slot, {M});
  check_shape("position", position, {M});
  require(slot.data != nullptr || M <= slots, "invariant GEMM: " + std::to_string(M) +
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
  detail::start_invariant_gemm(call, q, stream);
}

template <class T>
void invariant_gemm_logits(Tensor<float, 2> out, const InvariantGemm<T>& product, Stream& stream) {
  const bool has_codes = product.codes.codes != nullptr;
  const std::int64_t M = out.shape[0], N = has_codes ? product.codes.N : product.weight.shape[0];
  const auto call = detail::invariant_gemm_call<float, T>(RowEpilogue::logits, product, M, N);
  require(product.bias.data == nullptr, "invariant GEMM: the logits have no bias");
  require(!product.quantizer.enabled, "invariant GEMM: the input of the logits is not quantized");
  if (out.shape[1] < N) check_shape("out", out, {M, N});
  check_shape("out", out, {M, out.shape[1]});
  detail::start_invariant_gemm(call, out, stream);
}

LLMC_INSTANTIATE_PRODUCTS(run_invariant_gemm)
LLMC_INSTANTIATE(invariant_gemm)
LLMC_INSTANTIATE(invariant_gemm_activation)
LLMC_INSTANTIATE(invariant_gemm_add)
LLMC_INSTANTIATE_CACHES(invariant_gemm_qkv)
LLMC_INSTANTIATE(invariant_gemm_logits)

}  // namespace llmc
