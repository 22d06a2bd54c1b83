// The values of --model.
#pragma once

#include <string>

#include "llmc/config/model_config.h"

namespace llmc {

// Returns the shape of `name`: a file NAME.json, which is a config.json of transformers, or "dN", a
// model of N layers. The published sizes are d12 (124M), d24 (350M), d36 (774M) and d48 (1558M).
// Other depths have 8 + N/3 heads of 64 channels, the line on which the published sizes lie (d48,
// with 25 heads, is just above). megatron-1.2b, -2.5b, -4.2b and -8.3b are the sizes of Shoeybi et
// al. (2019).
// Throws a usage error if there is no such model.
ModelConfig config_from_name(const std::string& name);

}  // namespace llmc
