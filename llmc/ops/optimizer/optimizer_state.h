// State of a step that the optimizer's kernels share with each other and, afterwards, with the
// host. It is in device memory, so that clipping, skipping an update and loss scaling never wait
// for the host.
//
// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018), for fp16: the
// gradient of the loss is multiplied by loss_scale before the backward pass, so that small
// gradients do not become zero, and the optimizer divides by it. If a gradient overflows, the
// update is skipped and the scale is halved. After a number of applied updates in a row, the scale
// is doubled. Scales are powers of two, so scaling does not round.
#pragma once

#include <cstdint>

namespace llmc {

inline constexpr float kMinLossScale = 1, kMaxLossScale = 16777216;  // 2^24

struct OptimizerState {
  // The latest step; written by finish_global_norm.
  float gradient_norm = 0;      // unscaled, before clipping
  float gradient_scale = 0;     // AdamW's factor for gradients: clipping and unscaling
  float step_loss_scale = 0;    // loss scale of this step's gradients
  std::int32_t finite = 0;      // 0: the loss or the norm is not finite; the update is skipped
  std::int32_t overflowed = 0;  // 1: the loss is finite, the norm is not
  // The whole run; written by begin_adamw. A resumed run must restore updates, skipped_updates,
  // consecutive_skips, loss_scale and loss_scale_good_steps.
  std::int32_t updates = 0;          // applied so far
  std::int32_t skipped_updates = 0;  // so far
  // Skipped since the last applied update, except skips that a smaller loss scale may cure.
  std::int32_t consecutive_skips = 0;
  float bias_correction1 = 0;              // 1 - beta1^updates
  float bias_correction2_root = 0;         // sqrt(1 - beta2^updates)
  float loss_scale = 0;                    // scale of the next step; 0: gradients are not scaled
  std::int32_t loss_scale_good_steps = 0;  // updates applied since the last skip or change of scale
};

}  // namespace llmc
