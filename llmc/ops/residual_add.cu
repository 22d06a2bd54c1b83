#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/residual_add.h"

namespace llmc {

template <class T>
__global__ void residual_add_kernel(T* out, const T* residual, const T* branch, std::int64_t n) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Floats<N> sum =
      load_floats_up_to<N>(residual + i, n - i) + load_floats_up_to<N>(branch + i, n - i);
  store_floats_up_to(out + i, sum, n - i);
}

template <class T>
void residual_add(Tensor<T, 2> out, In<T, 2> residual, In<T, 2> branch, Stream& stream) {
  const ProfileScope scope("residual add", stream, memory_traffic(out, residual, branch));
  check_shape("residual", residual, {out.shape[0], out.shape[1]});
  check_shape("branch", branch, {out.shape[0], out.shape[1]});
  launch_elementwise<kPerThread<T>>(residual_add_kernel<T>, out.size(), stream, out.data,
                                    residual.data, branch.data, out.size());
}

LLMC_INSTANTIATE(residual_add)

}  // namespace llmc
