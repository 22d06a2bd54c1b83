// A pipeline as a run uses it: the layers of its stages, the passes of each rank, and how much each
// rank keeps at the same time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/pipeline/schedule.h"
#include "llmc/pipeline/stages.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

// One rank with one stage by default: it needs no schedule.
struct Pipeline {
  PipelineShape shape = {};
  std::vector<std::int64_t> bounds = {};  // stages.h; empty: the only stage has all layers
  PipelineSchedule schedule = {};         // empty: one rank

  bool single() const { return shape.ranks == 1; }

  // The most activations of passes that a rank keeps at the same time: those whose forward pass it
  // has computed and whose backward pass it has not.
  int slots(int rank) const {
    if (single()) return 1;
    int kept = 0, most = 1;
    for (const PipelinePass& pass : passes(rank)) {
      kept += pass.kind == PassKind::forward ? 1 : -1;
      most = std::max(most, kept);
    }
    return most;
  }

  // The most gradients that a rank has sent and that have not arrived: as many as the rank of the
  // stage before keeps activations. 0 if the rank sends none.
  int sent_gradients(int rank) const {
    if (single() || (rank == 0 && shape.chunks == 1)) return 0;
    return slots((rank + shape.ranks - 1) % shape.ranks);
  }

  // The most micro-batches that a rank has at the same time, from the first pass to the last pass
  // of each.
  int batches(int rank) const {
    if (single()) return 1;
    const std::vector<int> counts = passes_per_micro_batch(rank);
    std::vector<int> left = counts;
    int kept = 0, most = 1;
    for (const PipelinePass& pass : passes(rank)) {
      const auto i = static_cast<std::size_t>(pass.micro_batch);
      if (left[i] == counts[i]) most = std::max(most, ++kept);
      if (--left[i] == 0) --kept;
    }
    return most;
  }

  // Number of passes of each micro-batch on a rank.
  std::vector<int> passes_per_micro_batch(int rank) const {
    std::vector<int> counts(static_cast<std::size_t>(shape.micro_batches));
    for (const PipelinePass& pass : passes(rank)) {
      ++counts[static_cast<std::size_t>(pass.micro_batch)];
    }
    return counts;
  }

  // The rank that computes a layer.
  int rank_of_layer(std::int64_t layer) const {
    if (single()) return 0;
    const auto end = std::ranges::upper_bound(bounds, layer);
    return shape.rank_of(static_cast<int>(end - bounds.begin()) - 1);
  }

  // The passes of a rank of several.
  const std::vector<PipelinePass>& passes(int rank) const {
    return schedule[static_cast<std::size_t>(rank)];
  }
};

namespace pipeline_detail {
// Throws unless a rank receives the messages of `sender` in the order in which they are sent.
inline void check_messages(const PipelineSchedule& schedule, const PipelineShape& shape, int sender,
                           PassKind kind) {
  const int step = kind == PassKind::forward ? 1 : -1, last = shape.stages() - 1;
  const int receiver = (sender + step + shape.ranks) % shape.ranks;
  std::vector<PipelinePass> inputs;  // the passes that need the messages
  for (const PipelinePass& pass : schedule[static_cast<std::size_t>(sender)]) {
    const int next = pass.stage + step;
    if (pass.kind == kind && 0 <= next && next <= last) {
      inputs.push_back({next, kind, pass.micro_batch});
    }
  }
  std::size_t count = 0;
  for (const PipelinePass& pass : schedule[static_cast<std::size_t>(receiver)]) {
    const int before = pass.stage - step;
    if (pass.kind != kind || before < 0 || before > last) continue;
    const PipelinePass& input = inputs[count++];
    if (input == pass) continue;
    fail("pipeline schedule: " + cell(static_cast<std::size_t>(receiver), pass) + ": rank " +
             std::to_string(sender) + " sends the input of " + input.name() + " before",
         "neighbours compute the passes of a direction in the same order");
  }
}
}  // namespace pipeline_detail

// Throws an Error that names rank and cell unless ranks receive in the order in which their
// neighbours send. check_schedule must accept the schedule.
inline void check_message_order(const PipelineSchedule& schedule, const PipelineShape& shape) {
  for (int rank = 0; rank < shape.ranks; ++rank) {
    pipeline_detail::check_messages(schedule, shape, rank, PassKind::forward);
    pipeline_detail::check_messages(schedule, shape, rank, PassKind::backward);
  }
}

// The pipeline of a model of `layers` layers. `blocks`: those of each stage; empty: as even as
// possible. `schedule` replaces 1F1B or interleaved 1F1B. Throws an Error if the model cannot be
// divided like this, or if the schedule cannot run.
inline Pipeline make_pipeline(const PipelineShape& shape, std::int64_t layers,
                              const std::vector<std::int64_t>& blocks = {},
                              std::optional<PipelineSchedule> schedule = {}) {
  if (shape.ranks == 1) return {};
  Pipeline pipeline{.shape = shape};
  pipeline.bounds = blocks.empty() ? even_stages(layers, shape.stages())
                                   : requested_stages(layers, shape.stages(), blocks);
  if (schedule) {
    check_schedule(*schedule, shape);
    check_message_order(*schedule, shape);
    pipeline.schedule = std::move(*schedule);
  } else {
    pipeline.schedule = pipeline_schedule(shape);
  }
  return pipeline;
}

}  // namespace llmc
