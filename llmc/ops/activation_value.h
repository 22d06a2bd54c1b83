// Activation functions and their derivatives of a number in a register, for kernels that fuse them
// (activation.h). T is the dtype that the number is stored in; F is Floats<N>.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/activation.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/gelu_gate.h"

namespace llmc {

// GELU in its tanh form.
struct TanhGelu {
  static constexpr const char* kForward = "gelu forward";  // names in a profile
  static constexpr const char* kBackward = "gelu backward";

  template <class T, class F>
  static __device__ __forceinline__ F value(const F& x) {
    return x * gelu_gate<T>(x);
  }
  template <class T, class F>
  static __device__ __forceinline__ F derivative(const F& x) {
    return gelu_derivative<T>(x);
  }
};

// GELU as defined (Hendrycks and Gimpel, 2016): x Φ(x), with the derivative Φ(x) + x φ(x), where φ
// is the density of the normal distribution.
//
// For x < 0, Φ(x) = φ(x) M(|x|) with Mills' ratio M, a smooth function that decreases slowly; for
// x > 0, Φ(x) = 1 - Φ(-x). M(|x|) / sqrt(2 pi) is computed as t P(t) with t = 1 / (1 + 0.4 |x| /
// sqrt(2)). P is the polynomial of degree 10 with the smallest largest relative error, 6e-9. So Φ
// keeps its relative accuracy far below zero, where 1 + erf would cancel.
class ExactGelu {
 public:
  static constexpr const char* kForward = "exact gelu forward";
  static constexpr const char* kBackward = "exact gelu backward";

  template <class T, class F>
  static __device__ __forceinline__ F value(const F& x) {
    return x * distribution(x, exp_half_square<T>(x));
  }
  template <class T, class F>
  static __device__ __forceinline__ F derivative(const F& x) {
    constexpr float kInverseRoot = 0.3989422804014327f;  // 1 / sqrt(2 pi)
    const F e = exp_half_square<T>(x);
    return distribution(x, e) + kInverseRoot * x * e;
  }

 private:
  // exp(-x²/2). fp32 needs the accurate exp.
  template <class T, class F>
  static __device__ __forceinline__ F exp_half_square(const F& x) {
    const F exponent = -0.5f * x * x;
    if constexpr (sizeof(T) < sizeof(float)) {
      return fast_exp2(kLog2E * exponent);
    } else {
      return accurate_exp(exponent);
    }
  }

  // Φ(x); e = exp(-x²/2).
  template <class F>
  static __device__ __forceinline__ F distribution(const F& x, const F& e) {
    constexpr float kSlope = 0.28284271247461900976f;  // 0.4 / sqrt(2)
    constexpr float kCoefficients[] = {-0.0146075226f, 0.070223175f,  -0.117763229f, 0.0687802285f,
                                       -0.0234472398f, 0.0419580452f, 0.0595041923f, 0.0858696327f,
                                       0.103806868f,   0.112837933f,  0.112837918f};
    const F t = 1.0f / (1.0f + kSlope * max_elements(x, 0.0f - x));
    F p = kCoefficients[0];
    for (int i = 1; i < 11; ++i) p = multiply_add(p, t, F(kCoefficients[i]));
    const F tail = e * (t * p);
    return select_negative(x, tail, 1.0f - tail);
  }
};

struct Relu {
  static constexpr const char* kForward = "relu forward";
  static constexpr const char* kBackward = "relu backward";

  template <class T, class F>
  static __device__ __forceinline__ F value(const F& x) {
    return select_negative(x, F(0.0f), x);  // a choice: NaN stays NaN, and -Inf becomes 0
  }
  template <class T, class F>
  static __device__ __forceinline__ F derivative(const F& x) {
    return select_negative(0.0f - x, F(1.0f), F(0.0f));
  }
};

// Calls use(F()) with the class of a function.
template <class Use>
void dispatch_activation(Activation f, const Use& use) {
  if (f == Activation::gelu) return use(ExactGelu());
  if (f == Activation::relu) return use(Relu());
  use(TanhGelu());
}

// f(x), for kernels that are compiled for any function. f is the same for all threads.
template <class T, class F>
__device__ __forceinline__ F activation_value(Activation f, const F& x) {
  if (f == Activation::gelu) return ExactGelu::value<T>(x);
  if (f == Activation::relu) return Relu::value<T>(x);
  return TanhGelu::value<T>(x);
}

}  // namespace llmc
