// The mode of INT8 that a model runs in: that of --quant or, for INT8 weights in files, theirs.
#pragma once

#include "llmc/config/infer_settings.h"

namespace llmc {

// Sets quant and zero_points of `settings` as far as `request` leaves them to the model. --model
// must be a path of find_pretrained(). Throws if a flag does not fit the model.
void resolve_quant(const InferRequest& request, InferConfig& settings);

}  // namespace llmc
