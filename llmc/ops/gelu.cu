#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gelu_gate.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T>
__global__ void gelu_forward_kernel(T* out, const T* inp, std::int64_t n) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Floats<N> x = load_floats_up_to<N>(inp + i, n - i);
  store_floats_up_to(out + i, x * gelu_gate<T>(x), n - i);
}

template <class T>
__global__ void gelu_backward_kernel(T* d_inp, const T* d_out, const T* inp, std::int64_t n) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Floats<N> x = load_floats_up_to<N>(inp + i, n - i);
  const Floats<N> d = load_floats_up_to<N>(d_out + i, n - i);
  store_floats_up_to(d_inp + i, d * gelu_derivative<T>(x), n - i);
}

template <class T>
void gelu_forward(Tensor<T, 2> out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope("gelu forward", stream, memory_traffic(out, inp));
  check_shape("out", out, {inp.shape[0], inp.shape[1]});
  const std::int64_t n = out.size();
  launch_elementwise<kPerThread<T>>(gelu_forward_kernel<T>, n, stream, out.data, inp.data, n);
}

template <class T>
void gelu_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope("gelu backward", stream, memory_traffic(d_inp, d_out, inp));
  check_shape("d_inp", d_inp, {inp.shape[0], inp.shape[1]});
  check_shape("d_out", d_out, {inp.shape[0], inp.shape[1]});
  const std::int64_t n = d_inp.size();
  launch_elementwise<kPerThread<T>>(gelu_backward_kernel<T>, n, stream, d_inp.data, d_out.data,
                                    inp.data, n);
}

LLMC_INSTANTIATE(gelu_forward)
LLMC_INSTANTIATE(gelu_backward)

}  // namespace llmc
