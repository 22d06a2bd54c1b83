// The settings with which a run fits that does not fit as it is.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/comm/mesh.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/dtype.h"
#include "llmc/device/target.h"

namespace llmc {

// A run of which a rank has `free_bytes` of memory.
struct FitRequest {
  Dtype dtype = Dtype::fp32;
  ModelConfig config;
  RunShape shape;
  Mesh mesh;
  std::int64_t free_bytes = 0;
  std::int64_t micro_batches = 1;      // of a step
  bool is_host_memory = !kCudaTarget;  // whether the memory is also the host's
};

// The largest micro-batch up to that of the run with which it fits; 0 if there is none.
std::int64_t largest_batch_that_fits(const FitRequest& request);

// FLOP that recomputing adds to a step, as a fraction of it.
double recompute_flops(const ModelConfig& config, const RunShape& shape);

// Returns a hint: the first of these that fits, with what it costs: the default --logits-rows; a
// smaller micro-batch; and with the largest micro-batch that fits, --recompute selective, --zero,
// --sequence-parallel, --recompute full, --offload of more and more kinds; then shorter sequences.
// The hint names no flag without which the run fits.
std::string fit_hint(const FitRequest& request);

}  // namespace llmc
