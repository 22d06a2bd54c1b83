// AdamW (Loshchilov and Hutter, 2019), in PyTorch's order: weight decay acts on the old parameter,
// then the bias-corrected Adam update is taken away.
//
// A step is: squared_norm_partials and finish_global_norm (global_norm.h), begin_adamw once, then
// adamw for each range of parameters. All of it is decided on the device: where the gradients or
// the loss were not finite, begin_adamw counts a skipped update and adamw changes nothing.
#pragma once

#include <cmath>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/optimizer_state.h"

namespace llmc {

struct AdamWOptions {
  float learning_rate;
  float weight_decay;
  double beta1 = 0.9;  // doubles: 1 - 0.999^t for small t needs more digits than fp32 has
  double beta2 = 0.95;
  float eps = 1e-8f;
};

// The work of one thread.
inline __global__ void begin_adamw_kernel(OptimizerState* state, double beta1, double beta2) {
  if (global_thread() > 0) return;
  if (state->finite == 0) {
    ++state->skipped;
    ++state->skipped_in_row;
    return;
  }
  state->skipped_in_row = 0;
  const double updates = ++state->updates;
  state->bias_correction1 = static_cast<float>(1.0 - std::pow(beta1, updates));
  state->bias_correction2_root = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, updates)));
}

// Once a step, between finish_global_norm and adamw: counts the update, or the skipped one, and
// writes the bias corrections. A run starts with a state of zeros.
inline void begin_adamw(OptimizerState* state, const AdamWOptions& options, Stream& stream) {
  launch(begin_adamw_kernel, Grid{1, 1, 1}, 32, 0, stream, state, options.beta1, options.beta2);
}

// What one element needs, with everything that is the same for all of them worked out.
struct AdamWStep {
  float keep;  // 1 - lr * weight_decay
  float learning_rate;
  float beta2, one_minus_beta1, one_minus_beta2;
  float eps;
};

template <class T>
__global__ void adamw_kernel(float* param, T* working, float* m_inout, float* v_inout,
                             const float* gradient, std::int64_t n, AdamWStep step,
                             const OptimizerState* state) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= n || state->finite == 0) return;
  const float scale = state->gradient_scale;
  const float rate = step.learning_rate / state->bias_correction1;
  const float root = state->bias_correction2_root;

  Vec<float, N> p = load_up_to<N>(param + i, n - i);
  Vec<float, N> m = load_up_to<N>(m_inout + i, n - i);
  Vec<float, N> v = load_up_to<N>(v_inout + i, n - i);
  const Vec<float, N> grad = load_up_to<N>(gradient + i, n - i);
  Vec<T, N> w;
  for (int k = 0; k < N; ++k) {
    const float g = scale * grad[k];
    m[k] += step.one_minus_beta1 * (g - m[k]);
    v[k] = step.beta2 * v[k] + step.one_minus_beta2 * (g * g);
    p[k] = step.keep * p[k] - rate * m[k] / (std::sqrt(v[k]) / root + step.eps);
    w[k] = from_float<T>(p[k]);
  }
  store_up_to(param + i, p, n - i);
  store_up_to(m_inout + i, m, n - i);
  store_up_to(v_inout + i, v, n - i);
  if (working != nullptr) store_up_to(working + i, w, n - i);
}

// One AdamW update of n parameters: param (fp32 master weights), m and v (fp32 moments) are
// updated; working, unless null, gets the new parameters rounded to T. gradient is fp32, before
// clipping. Nothing changes where state->finite is 0. All pointers are aligned to 16 bytes;
// options.weight_decay holds for all n.
template <class T>
void adamw(float* param, T* working, float* m, float* v, const float* gradient, std::int64_t n,
           const AdamWOptions& options, const OptimizerState* state, Stream& stream) {
  const AdamWStep step{
      .keep = static_cast<float>(1.0 - static_cast<double>(options.learning_rate) *
                                           static_cast<double>(options.weight_decay)),
      .learning_rate = options.learning_rate,
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
      .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
      .eps = options.eps,
  };
  launch_elementwise<kPerThread<T>>(adamw_kernel<T>, n, stream, param, working, m, v, gradient, n,
                                    step, state);
}

}  // namespace llmc
