// From the arguments of a product of inference to the call that kernels take.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/ops/checks.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"

namespace llmc {

namespace detail {

inline void require_aligned(const char* name, const void* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 == 0) return;
  fail(std::string("invariant GEMM: tensor '") + name +
       "' does not start at a multiple of 16 bytes");
}

// Checks the inputs. N columns are computed.
template <class TO, class KV, class T>
InvariantGemmCall<T, TO, KV> invariant_gemm_call(RowEpilogue epilogue,
                                                 const InvariantGemm<T>& product, std::int64_t M,
                                                 std::int64_t N) {
  const bool logits = epilogue == RowEpilogue::logits;
  const std::int64_t K = product.inp.shape[1];
  require_vector_rows("invariant GEMM", K);
  if (!logits) require_vector_rows("invariant GEMM", N);
  check_shape("inp", product.inp, {M, K});
  if (product.codes.codes != nullptr) {
    require(product.codes.K == K && product.codes.N == N,
            "invariant GEMM: the codes are not those of a weight of " + std::to_string(K) + " by " +
                std::to_string(N));
    require_aligned("codes", product.codes.codes);
  } else if (logits) {
    check_shape("weight", product.weight, {N, K});
  } else {
    check_shape("weight", product.weight, {K, N});
  }
  if (product.bias.data != nullptr) check_shape("bias", product.bias, {N});
  require((product.norm_weight.data == nullptr) == (product.norm_bias.data == nullptr),
          "invariant GEMM: only one of norm_weight and norm_bias has data");
  if (product.norm_weight.data != nullptr) {
    check_shape("norm_weight", product.norm_weight, {K});
    check_shape("norm_bias", product.norm_bias, {K});
  }
  require_aligned("inp", product.inp.data);
  require_aligned("weight", product.weight.data);
  require_aligned("bias", product.bias.data);
  require_aligned("norm_weight", product.norm_weight.data);
  require_aligned("norm_bias", product.norm_bias.data);
  InvariantGemmCall<T, TO, KV> call;
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
  call.activation = product.activation;
  call.gelu_factors = product.gelu_factors;
  call.bias = product.bias.data;
  return call;
}

}  // namespace detail

}  // namespace llmc
