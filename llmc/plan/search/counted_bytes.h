// The bytes that the ranks of a run send in a step, as its communicators will count them.
#pragma once

#include "llmc/config/train_settings.h"
#include "llmc/plan/time/sent_bytes.h"

namespace llmc {

// The bytes of the ranks with the first place in their tensor and data groups, which send the most.
SentBytes counted_bytes(const RunConfig& config);

}  // namespace llmc
