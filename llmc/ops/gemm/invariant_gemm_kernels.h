// The kernels of the products of inference: the choice by weight, kind of rows, shape and dtype.
// The number of rows takes no part in it.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"

namespace llmc {

// Launches the kernel of a product. Codes are in WarpCodeLayout, also on the host executor.
template <class T, class TO, class KV>
void launch_invariant_gemm(const InvariantGemmCall<T, TO, KV>& call, Stream& stream);

}  // namespace llmc
