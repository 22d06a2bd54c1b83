// --dry-run: the memory of each rank, and what it sends per step, without a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/model/engine.h"
#include "llmc/parallel/step_traffic.h"
#include "llmc/train/training_state.h"
#include "llmc/train/watch/step_numbers.h"

namespace llmc {

// The memory that each rank of a run reserves. Nothing is allocated and no rank is started.
template <class T>
std::vector<std::vector<MemoryPlan::Segment>> planned_memory(const RunConfig& config) {
  const RunShape shape = config.run_shape();
  std::vector<std::vector<MemoryPlan::Segment>> ranks;
  for (int rank = 0; rank < config.mesh().ranks; ++rank) {
    Context context({}, Ranks(config.mesh(), rank));
    const ParameterTable table(config.shape, context.tensor.place());
    MemoryPlan plan;
    TrainingState<T> state(table, shape, context, plan);
    const ModelRunner<T> runner(config.shape, table, state.source(), shape, context, plan);
    ranks.push_back(plan.segments());
  }
  return ranks;
}

namespace plan_text_detail {

inline std::string with_mebibytes(std::int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + megabytes(bytes) + ")";
}

// "rank 3" or "ranks 0 to 7, each"
inline std::string ranks_text(std::size_t first, std::size_t last) {
  if (first == last) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " + std::to_string(last) + ", each";
}

}  // namespace plan_text_detail

// A paragraph per group of neighbouring ranks with equal memory, then what a rank sends.
template <class T>
std::string plan_text(const RunConfig& config) {
  using namespace plan_text_detail;
  const ParameterTable table(config.shape);
  const auto ranks = planned_memory<T>(config);
  const auto equal = [&](std::size_t a, std::size_t b) {
    for (std::size_t i = 0; i < ranks[a].size(); ++i) {
      if (ranks[a][i].bytes != ranks[b][i].bytes) return false;
    }
    return true;
  };
  std::string text =
      "model: " + std::to_string(table.count()) + " parameters, " + dtype_name(kDtypeOf<T>) + "\n";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && equal(first, last + 1)) ++last;
    text += ranks_text(first, last) + ":\n";
    std::int64_t total = 0;
    for (const MemoryPlan::Segment& segment : ranks[first]) {
      text += "  " + segment.name + ": " + with_mebibytes(segment.bytes) + "\n";
      total += segment.bytes;
    }
    text += "  in all: " + with_mebibytes(total) + "\n";
    first = last + 1;
  }
  if (!config.training() || ranks.size() == 1) return text;
  const StepTraffic traffic = step_traffic(config.shape, config.run_shape(), config.mesh(),
                                           config.batch.grad_accum, sizeof(T));
  const std::int64_t exchanged = step_exchange_bytes(std::ssize(ranks));
  text += "each rank sends per step:\n  gradients: " + with_mebibytes(traffic.gradients.all()) +
          "\n  weights: " + with_mebibytes(traffic.weights.all()) +
          "\n  norm and loss: " + with_mebibytes(traffic.scalars.all()) + "\n";
  if (config.mesh().tensor_ranks > 1) {
    text += "  activations, to tensor ranks: " + with_mebibytes(traffic.activations.all()) +
            "\n  gradients and norm, to tensor ranks: " +
            with_mebibytes((traffic.copied_gradients + traffic.tensor_scalars).all()) + "\n";
  }
  return text + "  decisions and times: " + with_mebibytes(exchanged) +
         "\n  in all: " + with_mebibytes(traffic.all() + exchanged) + "\n";
}

}  // namespace llmc
