#include "llmc/device/device.h"
#include "llmc/ops/activation.h"
#include "llmc/ops/activation_value.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T, class F>
__global__ void activation_forward_kernel(T* out, const T* inp, std::int64_t n) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Floats<N> x = load_floats_up_to<N>(inp + i, n - i);
  store_floats_up_to(out + i, F::template value<T>(x), n - i);
}

template <class T, class F>
__global__ void activation_backward_kernel(T* d_inp, const T* d_out, const T* inp, std::int64_t n) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Floats<N> x = load_floats_up_to<N>(inp + i, n - i);
  const Floats<N> d = load_floats_up_to<N>(d_out + i, n - i);
  store_floats_up_to(d_inp + i, d * F::template derivative<T>(x), n - i);
}

namespace {

// Not lambdas: nvcc 13.0 takes no constant that depends on T from a lambda template.
template <class T, class F>
void forward_of(Tensor<T, 2> out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope(F::kForward, stream, memory_traffic(out, inp));
  launch_elementwise<kPerThread<T>>(activation_forward_kernel<T, F>, out.size(), stream, out.data,
                                    inp.data, out.size());
}

template <class T, class F>
void backward_of(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope(F::kBackward, stream, memory_traffic(d_inp, d_out, inp));
  launch_elementwise<kPerThread<T>>(activation_backward_kernel<T, F>, d_inp.size(), stream,
                                    d_inp.data, d_out.data, inp.data, d_inp.size());
}

}  // namespace

template <class T>
void activation_forward(Tensor<T, 2> out, In<T, 2> inp, Activation f, Stream& stream) {
  check_shape("out", out, {inp.shape[0], inp.shape[1]});
  dispatch_activation(f, [&]<class F>(F) { forward_of<T, F>(out, inp, stream); });
}

template <class T>
void activation_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Activation f,
                         Stream& stream) {
  check_shape("d_inp", d_inp, {inp.shape[0], inp.shape[1]});
  check_shape("d_out", d_out, {inp.shape[0], inp.shape[1]});
  dispatch_activation(f, [&]<class F>(F) { backward_of<T, F>(d_inp, d_out, inp, stream); });
}

LLMC_INSTANTIATE(activation_forward)
LLMC_INSTANTIATE(activation_backward)

}  // namespace llmc
