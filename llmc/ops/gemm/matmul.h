// Matrix products of tensors by the library of the target: cuBLASLt on a GPU, oneDNN or OpenBLAS on
// the host. A `Gemm` owns the library's handle, plans and workspace and serves one stream.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/gemm/gemm.h"
// gemm_cublaslt.h or gemm_host.h, chosen in llmc/device/target.h
#include LLMC_GEMM_HEADER

namespace llmc {

enum class Transpose { no, yes };

// Describes out (M, N) = op(a) op(b) + beta · out [+ bias on every row] for Gemm::run(). The caller
// may add an epilogue first. op(a) is (M, K), op(b) is (K, N); with Transpose::yes the tensor is
// stored transposed. a, b and bias have the same type. out may be fp32 if they are half precision
// (parameter gradients), but only without a bias. Throws an Error if shapes differ.
template <class TO, class TI>
GemmCall<TO, TI> matmul_call(Tensor<TO, 2> out, Tensor<const TI, 2> a, Transpose transpose_a,
                             Tensor<const TI, 2> b, Transpose transpose_b, float beta,
                             const TI* bias) {
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const std::int64_t M = out.shape[0], N = out.shape[1], K = a.shape[ta ? 0 : 1];
  check_shape(
      "a", a,
      ta ? std::initializer_list<std::int64_t>{K, M} : std::initializer_list<std::int64_t>{M, K});
  check_shape(
      "b", b,
      tb ? std::initializer_list<std::int64_t>{N, K} : std::initializer_list<std::int64_t>{K, N});
  check_shape("out", out, {M, N});
  GemmCall<TO, TI> call;
  call.transpose_a = ta;
  call.transpose_b = tb;
  call.m = M;
  call.n = N;
  call.k = K;
  call.a = a.data;
  call.b = b.data;
  call.c = out.data;
  call.beta = beta;
  call.bias = bias;
  return call;
}

// Runs matmul_call(...) with the same arguments; `alpha` multiplies op(a) op(b).
template <class TO, class TI>
void matmul(Tensor<TO, 2> out, Tensor<const TI, 2> a, Transpose transpose_a, Tensor<const TI, 2> b,
            Transpose transpose_b, float beta, const TI* bias, Gemm& gemm, Stream& stream,
            float alpha = 1);

}  // namespace llmc
