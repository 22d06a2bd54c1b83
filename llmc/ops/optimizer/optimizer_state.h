// What the optimizer's kernels tell each other, and the host afterwards, about a step. It lives in
// device memory, so that clipping, skipping an update and loss scaling never wait for the host.
//
// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018), for fp16: the
// gradient of the loss is multiplied by loss_scale before the backward pass, so that small
// gradients do not become zero, and the optimizer divides by it again. Where a gradient overflows
// the update is skipped and the scale halved; after a number of good updates in a row it is
// doubled. Scales are powers of two, so that scaling rounds nothing.
#pragma once

#include <cstdint>

namespace llmc {

inline constexpr float kMinLossScale = 1, kMaxLossScale = 16777216;  // 2^24

struct OptimizerState {
  // Of the latest step; written by finish_global_norm.
  float gradient_norm = 0;      // unscaled, before clipping
  float gradient_scale = 0;     // what AdamW multiplies gradients by: clipping, and unscaling
  float used_loss_scale = 0;    // that the gradients came with
  std::int32_t finite = 0;      // 0: the loss or the norm was not; the update is skipped
  std::int32_t overflowed = 0;  // 1: the loss was finite, the norm was not
  // Of the run; written by begin_adamw. `updates`, the skipped ones and the loss scale with its
  // counter are what a resumed run must restore.
  std::int32_t updates = 0;  // applied so far
  std::int32_t skipped = 0;  // skipped so far
  // Skipped since the last one applied, those left out that a smaller loss scale may cure.
  std::int32_t skipped_in_row = 0;
  float bias_correction1 = 0;              // 1 - beta1^updates
  float bias_correction2_root = 0;         // sqrt(1 - beta2^updates)
  float loss_scale = 0;                    // of the next step; 0: gradients are not scaled
  std::int32_t loss_scale_good_steps = 0;  // updates applied since the scale changed
};

}  // namespace llmc
