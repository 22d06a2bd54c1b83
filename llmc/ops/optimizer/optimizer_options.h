// Options of the optimizer step, the same in all steps of a run.
#pragma once

#include <cstdint>

#include "llmc/base/resolved.h"

namespace llmc {

// Options of AdamW, gradient clipping and loss scaling. Defaults are in the settings table
// (llmc/config), where `Value` can also be std::optional.
template <template <class> class Value>
struct OptimizerSettings {
  // Doubles: 1 - 0.999^t for small t needs more digits than fp32 has.
  Value<double> beta1, beta2;
  Value<double> eps;                      // added to the root of the second moment
  Value<double> weight_decay;             // decoupled; only for decayed tensors
  Value<double> grad_clip;                // maximum global gradient norm; 0 disables clipping
  Value<std::int64_t> loss_scale_window;  // fp16: good steps after which the loss scale doubles
};

using OptimizerOptions = OptimizerSettings<Resolved>;

}  // namespace llmc
