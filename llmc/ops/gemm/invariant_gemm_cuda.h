// The products of inference on a GPU.
#pragma once

#include "llmc/ops/gemm/invariant_gemm_kernels.h"

namespace llmc {

template <class T, class TO, class KV>
void run_invariant_gemm(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  launch_invariant_gemm(call, stream);
}

}  // namespace llmc
