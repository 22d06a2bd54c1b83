#include "llmc/device/device.h"
#include "llmc/ops/gemm/gemm.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class TO, class TI>
void matmul(Tensor<TO, 2> out, Tensor<const TI, 2> a, Transpose transpose_a, Tensor<const TI, 2> b,
            Transpose transpose_b, float beta, const TI* bias, Gemm& gemm, Stream& stream,
            float alpha) {
  GemmCall<TO, TI> call = matmul_call(out, a, transpose_a, b, transpose_b, beta, bias);
  call.alpha = alpha;
  const double multiply_adds =
      static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
  count_work({.flops = 2 * multiply_adds}, stream);
  gemm.run(call, stream);
}

LLMC_INSTANTIATE_SUMS(matmul)
}  // namespace llmc
