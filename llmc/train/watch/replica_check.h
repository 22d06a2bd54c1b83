// --verify-every: compares what several ranks hold in equal copies. A difference means that a rank
// computed something else: broken memory, a broken link, a defect.
#pragma once

#include <cstdint>

#include "llmc/comm/exchange.h"
#include "llmc/device/device.h"
#include "llmc/parallel/run_state.h"

namespace llmc {

// Throws on all ranks, with equal texts, if ranks that must hold the same values differ. The error
// names the first tensor with a difference. If more than half of its holders agree, it names the
// others as the minority; otherwise all sides. `loss` of the step. All ranks call this together.
void check_replicas(RunState& state, std::int64_t step, double loss, Exchange& exchange,
                    Stream& stream);

}  // namespace llmc
