// GELU in its tanh form (Hendrycks and Gimpel, 2016), as in GPT-2, and its derivative, of a number
// in a register.
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

}  // namespace llmc
