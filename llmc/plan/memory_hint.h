// Allocates the device memory of a run; if the run does not fit, suggests settings that fit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/comm/mesh.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/nn/context.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

// Bytes that a rank needs in a run of a shape.
using BytesOfShape = std::function<std::int64_t(const RunShape& shape)>;

// The largest micro-batch that fits and is smaller than that of `shape`; 0 if there is none.
std::int64_t smaller_batch_that_fits(RunShape shape, std::int64_t free_bytes,
                                     const BytesOfShape& bytes_of);

// Returns a hint for a run of which a rank does not fit into `free_bytes`: the smallest --zero that
// fits, if that is larger; else the default --logits-rows if that is smaller and fits, else the
// largest batch, else one sequence of half the length, a quarter and
// so on.
std::string fit_hint(const RunShape& shape, const Mesh& mesh, std::int64_t free_bytes,
                     const BytesOfShape& bytes_of);
std::string fit_hint(Dtype dtype, const ModelConfig& config, const RunShape& shape,
                     Context& context, std::int64_t free_bytes);

// Reports the device and the memory of a run, then allocates it. Throws with a hint if it does not
// fit. Ranks on the same device share its memory. Returns the bytes of each rank. All ranks call
// this together.
std::vector<std::int64_t> allocate(TrainingRunner& runner, Exchange& exchange);

}  // namespace llmc
