// What to ask for where a run does not fit into the device's memory.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/model/gpt2.h"
#include "llmc/model/memory_plan.h"
#include "llmc/train/training_state.h"

namespace llmc {

// A hint: the largest batch of which a run fits into so many bytes, else the longest sequence.
template <class T>
std::string what_would_fit(const Gpt2Config& config, const ParameterTable& table,
                           const RunShape& shape, std::int64_t free_bytes) {
  RunShape smaller = shape;
  const auto total = [&] {
    MemoryPlan memory;
    const TrainingState<T> state(table, smaller.training, memory);
    const Gpt2<T> model(config, table, smaller, memory);
    return memory.total();
  };
  std::int64_t fits = 0, too_many = shape.B;  // by halves: a batch may be of 65535 sequences
  while (too_many - fits > 1) {
    smaller.B = fits + (too_many - fits) / 2;
    (total() <= free_bytes ? fits : too_many) = smaller.B;
  }
  if (fits > 0) {
    return "--batch-size " + std::to_string(fits) +
           " would fit; --grad-accum keeps the batch large";
  }
  smaller.B = 1;
  const std::int64_t sequence = smaller.T;
  for (; smaller.T > 1; smaller.T = smaller.T / 2) {
    if (total() <= free_bytes) break;
  }
  if (smaller.T < sequence && total() <= free_bytes) {
    return "--batch-size 1 --seq-len " + std::to_string(smaller.T) + " would fit";
  }
  return "not even one short sequence would fit: a smaller model, or a device with more memory";
}

}  // namespace llmc
