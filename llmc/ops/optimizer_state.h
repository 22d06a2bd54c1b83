// What the optimizer's kernels tell each other, and the host afterwards, about a step. It lives in
// device memory, so that clipping and skipping an update never wait for the host.
#pragma once

#include <cstdint>

namespace llmc {

struct OptimizerState {
  // Of the latest step; written by finish_global_norm.
  float gradient_norm = 0;   // before clipping
  float gradient_scale = 0;  // what AdamW multiplies gradients by
  std::int32_t finite = 0;   // 0: the loss or the norm was not; the update is skipped
  // Of the run; written by begin_adamw. `updates` is what a resumed run must restore.
  std::int32_t updates = 0;         // applied so far
  std::int32_t skipped = 0;         // skipped so far
  std::int32_t skipped_in_row = 0;  // since the last one applied
  float bias_correction1 = 0;       // 1 - beta1^updates
  float bias_correction2_root = 0;  // sqrt(1 - beta2^updates)
};

}  // namespace llmc
