// The products of inference on a GPU.
#pragma once

#include "llmc/ops/gemm/row_product_kernels.h"

namespace llmc {

template <class T, class TO, class KV>
void run_row_product(const RowProductCall<T, TO, KV>& call, Stream& stream) {
  launch_row_product(call, stream);
}

}  // namespace llmc
