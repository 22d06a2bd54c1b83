#include <cmath>

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/adamw_update.h"
#include "llmc/ops/optimizer/optimizer_options.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/ops/optimizer/stochastic_rounding.h"

namespace llmc {

// Counts a skipped update. Only an overflow of the gradients indicates a loss scale that is too
// large; if the loss itself is not finite, no scale helps. A skip that a smaller scale may cure is
// no sign of a failing run, so it does not count in consecutive_skips. At the smallest scale, or if
// gradients are not scaled, every skip counts.
__device__ __forceinline__ void count_skip(OptimizerState* state) {
  ++state->skipped_updates;
  state->loss_scale_good_steps = 0;
  if (state->overflowed != 0 && state->loss_scale > kMinLossScale) {
    state->loss_scale = std::fmax(kMinLossScale, 0.5f * state->loss_scale);
  } else {
    ++state->consecutive_skips;
  }
}

__device__ __forceinline__ void count_good_step(OptimizerState* state, std::int32_t window) {
  if (state->loss_scale == 0.0f || ++state->loss_scale_good_steps < window) return;
  state->loss_scale = std::fmin(kMaxLossScale, 2.0f * state->loss_scale);
  state->loss_scale_good_steps = 0;
}

// Only one thread does the work.
__global__ void begin_adamw_kernel(OptimizerState* state, double beta1, double beta2,
                                   std::int32_t loss_scale_window) {
  if (global_thread() > 0) return;
  if (state->finite == 0) {
    count_skip(state);
    return;
  }
  state->consecutive_skips = 0;
  count_good_step(state, loss_scale_window);
  const double updates = ++state->updates;
  state->bias_correction1 = static_cast<float>(1.0 - std::pow(beta1, updates));
  state->bias_correction2_root = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, updates)));
}

void begin_adamw(OptimizerState* state, const OptimizerOptions& options, Stream& stream) {
  launch(begin_adamw_kernel, Grid{1, 1, 1}, cooperating_threads(32), 0, stream, state,
         options.beta1, options.beta2, static_cast<std::int32_t>(options.loss_scale_window));
}

AdamWStep make_adamw_step(const OptimizerOptions& options, double learning_rate,
                          bool use_weight_decay) {
  const float rate = static_cast<float>(learning_rate);
  const float weight_decay = use_weight_decay ? static_cast<float>(options.weight_decay) : 0;
  return {.decay_factor = static_cast<float>(1.0 - static_cast<double>(rate) *
                                                       static_cast<double>(weight_decay)),
          .learning_rate = rate,
          .beta2 = static_cast<float>(options.beta2),
          .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
          .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
          .eps = static_cast<float>(options.eps)};
}

template <class T, class Rounding>
__global__ void adamw_kernel(AdamWArrays<T> arrays, AdamWStep step, const OptimizerState* state,
                             Rounding rounding) {
  constexpr int N = kPerThread<T>;
  const std::int64_t i = global_thread() * N;
  if (i >= arrays.n || state->finite == 0) return;
  update_elements<N>(arrays, i, step, *state, rounding);
}

template <class T, class Rounding>
void adamw(float* param, T* working_weights, float* m, float* v, const float* gradient,
           std::int64_t n, const OptimizerOptions& options, double learning_rate,
           bool use_weight_decay, const OptimizerState* state, Stream& stream,
           const Rounding& rounding) {
  rounding.check("adamw");
  const AdamWStep step = make_adamw_step(options, learning_rate, use_weight_decay);
  const AdamWArrays<T> arrays{param, working_weights, m, v, gradient, n};
  launch_elementwise<kPerThread<T>>(adamw_kernel<T, Rounding>, n, stream, arrays, step, state,
                                    rounding);
}

LLMC_INSTANTIATE(adamw)
template decltype(adamw<bf16, StochasticRounding>) adamw<bf16, StochasticRounding>;
template decltype(adamw<fp16, StochasticRounding>) adamw<fp16, StochasticRounding>;
}  // namespace llmc
