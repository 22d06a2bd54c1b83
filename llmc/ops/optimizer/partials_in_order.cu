#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/optimizer/partials_in_order.h"

namespace llmc {

template <class = void>
__global__ void partials_in_order_kernel(float* out, const float* gathered, std::int64_t count,
                                         std::int64_t per_rank, std::int64_t stride) {
  const std::int64_t i = global_thread();
  if (i < count) out[i] = gathered[i / per_rank * stride + i % per_rank];
}

void partials_in_order(float* out, const float* gathered, std::int64_t count, std::int64_t per_rank,
                       std::int64_t stride, Stream& stream) {
  launch_elementwise<1>(partials_in_order_kernel<>, count, stream, out, gathered, count, per_rank,
                        stride);
}

}  // namespace llmc
