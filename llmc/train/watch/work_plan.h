// Estimates of the cost of each kind of work before it is measured, for the time left of a run.
#pragma once

#include <cstdint>

#include "llmc/config/train_settings.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/watch/eta.h"

namespace llmc {

// A forward pass costs a third of forward and backward; the speed of a disk is assumed to be 300
// MB/s. `parameters` is their number.
void set_work_guesses(Eta& eta, const RunConfig& config, const RunData& data,
                      std::int64_t parameters);

}  // namespace llmc
