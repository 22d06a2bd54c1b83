// Allocates the device memory of a run; if the run does not fit, suggests settings that fit.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/model/engine.h"
#include "llmc/train/training_state.h"

namespace llmc {

// Bytes of device memory that a run of this shape reserves; nothing is allocated. The call changes
// the size of context.scratch, so `context` must belong to an engine that will not run.
template <class T>
std::int64_t memory_of(const Gpt2Config& config, const RunShape& shape, Context& context) {
  const ParameterTable table(config);
  MemoryPlan plan;
  TrainingState<T> state(table, shape, context, plan);
  const ModelRunner<T> runner(config, table, state.source(), shape, context, plan);
  return plan.total();
}

// Returns a hint for a run that does not fit into `free_bytes`: the default --logits-rows if that
// is smaller and fits, else the largest batch, else one sequence of half the length, a quarter and
// so on.
template <class T>
std::string fit_hint(const Gpt2Config& config, const RunShape& shape, Context& context,
                     std::int64_t free_bytes) {
  RunShape candidate = shape;
  const auto fits = [&] { return memory_of<T>(config, candidate, context) <= free_bytes; };
  candidate.logits_rows = RunShape{}.logits_rows;
  if (candidate.chunk_rows() < shape.chunk_rows() && fits()) {
    return "use --logits-rows " + std::to_string(candidate.logits_rows) + ", which fits";
  }
  candidate.logits_rows = shape.logits_rows;
  std::int64_t max_batch = 0, upper_bound = shape.B;  // bisection: B may be as large as 65535
  while (upper_bound - max_batch > 1) {
    candidate.B = max_batch + (upper_bound - max_batch) / 2;
    (fits() ? max_batch : upper_bound) = candidate.B;
  }
  if (max_batch > 0) {
    return "use --batch-size " + std::to_string(max_batch) +
           ", which fits; --grad-accum keeps the global batch large";
  }
  candidate.B = 1;
  const std::int64_t full_length = candidate.T;
  for (; candidate.T > 1; candidate.T = candidate.T / 2) {
    if (fits()) break;
  }
  if (candidate.T < full_length && fits()) {
    return "use --batch-size 1 --seq-len " + std::to_string(candidate.T) + ", which fits";
  }
  return "use a smaller model or a device with more memory: not even one short sequence fits";
}

// Reports the device and the memory of a run, then allocates it. Throws with a hint if it does not
// fit.
template <class T>
void allocate(TrainingEngine<T>& engine) {
  const DeviceProperties device = device_properties();
  const MemoryPlan& memory = engine.memory();
  Notice::print("device: " + std::string(device.name) + ", " + megabytes(device.free_memory) +
                " free of " + megabytes(device.total_memory) + "\nmemory: " + memory.report());
  if (memory.total() > device.free_memory) {
    fail("the run needs " + megabytes(memory.total()) + " of device memory, " +
             megabytes(device.free_memory) + " are free (" + memory.report() + ")",
         fit_hint<T>(engine.config(), engine.shape(), engine.context(), device.free_memory));
  }
  engine.allocate();
}

}  // namespace llmc
