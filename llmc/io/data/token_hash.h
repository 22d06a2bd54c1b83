// A hash of the tokens that a run trains on. The hash of a step is the sum, modulo 2^64, of one
// hash per window, which depends on the window's tokens and its number among all samples of the
// run. So it does not depend on how the windows are spread over ranks and micro-batches, and sums
// over several steps can be compared between runs with other steps.
#pragma once

#include <cstdint>

#include "llmc/io/data/batches.h"

namespace llmc {

// `first_sample`: number of the batch's first window. Masked targets (-1) count as they are.
std::uint64_t token_hash(const Batch& batch, std::int64_t first_sample);

}  // namespace llmc
