// The first lines that a run prints about itself.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/config/train_settings.h"

namespace llmc {

// Prints the model and the run. `windows` is the number of training windows.
void describe(const RunConfig& run, std::optional<std::int64_t> windows);

}  // namespace llmc
