// GELU in its tanh form (Hendrycks and Gimpel, 2016), as in GPT-2.
//
//   gelu(x) = x/2 (1 + tanh u),  u(x) = sqrt(2/pi) (x + 0.044715 x^3)
//
// Computed as x * s with s = 1 / (1 + exp(-2u)). This is equal, since (1 + tanh u) / 2 is the
// logistic function of 2u. It needs one exponential and keeps its relative accuracy for u far below
// zero, where 1 + tanh u would cancel.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)

// Returns 1 / (1 + exp(-2 u(x))). T is the dtype that x is stored in; fp32 needs the accurate exp.
// F is float or Floats<N>.
template <class T, class F>
__device__ __forceinline__ F gelu_gate(const F& x) {
  const F minus_2u = -kGeluTwiceRoot * (x + kGeluCubic * x * x * x);
  if constexpr (sizeof(T) < sizeof(float)) {
    return 1.0f / (1.0f + fast_exp2(kLog2E * minus_2u));
  } else {
    return 1.0f / (1.0f + accurate_exp(minus_2u));
  }
}

// d gelu / dx = s + x s' with s' = s (1 - s) 2 du/dx.
template <class T, class F>
__device__ __forceinline__ F gelu_derivative(const F& x) {
  const F s = gelu_gate<T>(x);
  const F twice_du = kGeluTwiceRoot * (1.0f + 3.0f * kGeluCubic * x * x);
  return s + x * s * (1.0f - s) * twice_du;
}

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

// out = gelu(inp), element by element. out and inp (rows, C); out may be inp.
template <class T>
void gelu_forward(Tensor<T, 2> out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope("gelu forward", stream, memory_traffic(out, inp));
  check_shape("out", out, {inp.shape[0], inp.shape[1]});
  const std::int64_t n = out.size();
  launch_elementwise<kPerThread<T>>(gelu_forward_kernel<T>, n, stream, out.data, inp.data, n);
}

// Writes d_inp = d_out * gelu'(inp). All (rows, C); d_inp may be d_out or inp.
template <class T>
void gelu_backward(Tensor<T, 2> d_inp, In<T, 2> d_out, In<T, 2> inp, Stream& stream) {
  const ProfileScope scope("gelu backward", stream, memory_traffic(d_inp, d_out, inp));
  check_shape("d_inp", d_inp, {inp.shape[0], inp.shape[1]});
  check_shape("d_out", d_out, {inp.shape[0], inp.shape[1]});
  const std::int64_t n = d_inp.size();
  launch_elementwise<kPerThread<T>>(gelu_backward_kernel<T>, n, stream, d_inp.data, d_out.data,
                                    inp.data, n);
}

}  // namespace llmc
