// The arithmetic of an AdamW update (adamw.h), which the kernel and the CPU share.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/optimizer_state.h"

namespace llmc {

// The arrays of n parameters. All are fp32, except working_weights, which may be null.
template <class T>
struct AdamWArrays {
  float* param;
  T* working_weights;
  float *m, *v;
  const float* gradient;
  std::int64_t n;
};

// Updates elements i to i + N - 1, as far as there are so many. `state` is that after begin_adamw,
// of an update that is not skipped.
template <int N, class T, class Rounding>
__host__ __device__ __forceinline__ void update_elements(const AdamWArrays<T>& arrays,
                                                         std::int64_t i, const AdamWStep& step,
                                                         const OptimizerState& state,
                                                         const Rounding& rounding) {
  const std::int64_t count = arrays.n - i;
  const float scale = state.gradient_scale;
  const float rate = step.learning_rate / state.bias_correction1;
  const float root = state.bias_correction2_root;

  Vec<float, N> p = load_up_to<N>(arrays.param + i, count);
  Vec<float, N> m = load_up_to<N>(arrays.m + i, count);
  Vec<float, N> v = load_up_to<N>(arrays.v + i, count);
  const Vec<float, N> grad = load_up_to<N>(arrays.gradient + i, count);
  Vec<T, N> w;
  for (int k = 0; k < N; ++k) {
    const float g = scale * grad[k];
    m[k] += step.one_minus_beta1 * (g - m[k]);
    v[k] = step.beta2 * v[k] + step.one_minus_beta2 * (g * g);
    p[k] = step.decay_factor * p[k] - rate * m[k] / (std::sqrt(v[k]) / root + step.eps);
  }
  rounding.template round<T, N>(w, p, i, state.updates);
  store_up_to(arrays.param + i, p, count);
  store_up_to(arrays.m + i, m, count);
  store_up_to(arrays.v + i, v, count);
  if (arrays.working_weights != nullptr) store_up_to(arrays.working_weights + i, w, count);
}

}  // namespace llmc
