// Allocates the device memory of a run; if the run does not fit, suggests what would.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

#include "llmc/model/engine.h"
#include "llmc/train/training_state.h"

namespace llmc {

// Bytes of device memory that a run of this shape reserves; nothing is allocated. The call changes
// the size of context.scratch, so `context` must belong to an engine that will not run.
template <class T>
std::int64_t memory_of(const Gpt2Config& config, const RunShape& shape, Context& context) {
  const ParameterTable table(config);
  MemoryPlan plan;
  TrainingState<T> state(table, shape.training, plan);
  const ModelRunner<T> runner(config, table, state.source(), shape, context, plan);
  return plan.total();
}

// Returns a hint for a run that does not fit into `free_bytes`: the default --logits-rows if that
// is smaller and fits, else the largest batch, else one sequence of half the length, a quarter and
// so on.
template <class T>
std::string what_would_fit(const Gpt2Config& config, const RunShape& shape, Context& context,
                           std::int64_t free_bytes) {
  RunShape smaller = shape;
  const auto fits = [&] { return memory_of<T>(config, smaller, context) <= free_bytes; };
  smaller.logits_rows = RunShape{}.logits_rows;
  if (smaller.chunk_rows() < shape.chunk_rows() && fits()) {
    return "--logits-rows " + std::to_string(smaller.logits_rows) + " would fit";
  }
  smaller.logits_rows = shape.logits_rows;
  std::int64_t largest = 0, too_many = shape.B;  // bisection: B may be as large as 65535
  while (too_many - largest > 1) {
    smaller.B = largest + (too_many - largest) / 2;
    (fits() ? largest : too_many) = smaller.B;
  }
  if (largest > 0) {
    return "--batch-size " + std::to_string(largest) +
           " would fit; --grad-accum keeps the batch large";
  }
  smaller.B = 1;
  const std::int64_t sequence = smaller.T;
  for (; smaller.T > 1; smaller.T = smaller.T / 2) {
    if (fits()) break;
  }
  if (smaller.T < sequence && fits()) {
    return "--batch-size 1 --seq-len " + std::to_string(smaller.T) + " would fit";
  }
  return "not even one short sequence would fit: a smaller model, or a device with more memory";
}

// Reports the device and the memory of a run, then allocates it. Throws with a hint if it does not
// fit.
template <class T>
void allocate(TrainingEngine<T>& engine) {
  const DeviceProperties device = device_properties();
  const MemoryPlan& memory = engine.memory();
  std::cerr << "device: " << device.name << ", " << megabytes(device.free_memory) << " free of "
            << megabytes(device.total_memory) << "\n"
            << "memory: " << memory.report() << "\n";
  if (memory.total() > device.free_memory) {
    fail("the run needs " + megabytes(memory.total()) + " of device memory, " +
             megabytes(device.free_memory) + " are free (" + memory.report() + ")",
         what_would_fit<T>(engine.config(), engine.shape(), engine.context(), device.free_memory));
  }
  engine.allocate();
}

}  // namespace llmc
