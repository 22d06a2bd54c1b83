// The host memory that ranks need for a checkpoint which they write while training continues.
#pragma once

#include <cstdint>
#include <vector>

#include "llmc/config/train_settings.h"

namespace llmc {

// Bytes of the state that each rank copies for a save; all are 0 unless --save is async and the run
// has an --out.
std::vector<std::int64_t> snapshot_bytes(const RunConfig& config);

}  // namespace llmc
