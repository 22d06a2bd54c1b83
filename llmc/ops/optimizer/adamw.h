// AdamW (Loshchilov and Hutter, 2019), in PyTorch's order: weight decay scales the old parameter,
// then the bias-corrected Adam update is subtracted.
//
// A step calls squared_norm_partials and finish_global_norm (global_norm.h), begin_adamw once, then
// adamw for each range of parameters. All decisions are made on the device: if the gradients or the
// loss are not finite, begin_adamw counts a skipped update and adamw changes nothing.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/optimizer/optimizer_options.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/ops/optimizer/stochastic_rounding.h"

namespace llmc {

// Called once per step, between finish_global_norm and adamw. Counts the update or the skipped one,
// and writes the bias corrections and the loss scale of the next step (optimizer_state.h). Initial
// state: all zeros, except loss_scale if gradients are scaled (fp16).
void begin_adamw(OptimizerState* state, const OptimizerOptions& options, Stream& stream);

// Constants of one update, computed once for all elements.
struct AdamWStep {
  float decay_factor;  // 1 - lr * weight_decay
  float learning_rate;
  float beta2, one_minus_beta1, one_minus_beta2;
  float eps;
};

// The learning rate, the weight decay and eps are rounded to fp32.
AdamWStep make_adamw_step(const OptimizerOptions& options, double learning_rate,
                          bool use_weight_decay);

// One AdamW update of n parameters. Updates param (fp32 master weights), m and v (fp32 moments).
// Unless it is null, `working_weights` receives the new parameters rounded to T by `rounding`
// (NearestRounding or StochasticRounding, whose step is the number of the update). gradient is
// fp32, before unscaling and clipping. Nothing changes if state->finite is 0. All pointers are
// aligned to 16 bytes. `use_weight_decay` is true if weight decay applies to these n parameters.
template <class T, class Rounding = NearestRounding>
void adamw(float* param, T* working_weights, float* m, float* v, const float* gradient,
           std::int64_t n, const OptimizerOptions& options, double learning_rate,
           bool use_weight_decay, const OptimizerState* state, Stream& stream,
           const Rounding& rounding = {});

}  // namespace llmc
