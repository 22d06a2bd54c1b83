// A pipeline as a run uses it: the layers of its stages, the passes of each rank, and how much each
// rank keeps at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/pipeline/schedule.h"

namespace llmc {

// One rank with one stage by default: it needs no schedule.
struct Pipeline {
  PipelineShape shape = {};
  std::vector<std::int64_t> bounds = {};  // stages.h; empty: the only stage has all layers
  PipelineSchedule schedule = {};         // empty: one rank
  // The stages before this one have no backward passes: no parameter of them learns.
  int first_backward = 0;

  bool single() const { return shape.ranks == 1; }

  // The most activations of passes that a rank has at the same time: those whose forward pass it
  // has computed and whose backward pass it has not, and those of a forward pass on its own.
  int slots(int rank) const;

  // The most gradients that a rank has sent and that have not arrived: as many as the rank of the
  // stage before has activations. 0 if the rank sends none: its stages, or those before them, have
  // no backward passes.
  int sent_gradients(int rank) const;

  // The most micro-batches that a rank has at the same time, from the first pass to the last pass
  // of each.
  int batches(int rank) const;

  // Number of passes of each micro-batch on a rank.
  std::vector<int> passes_per_micro_batch(int rank) const;

  // The rank that computes a layer.
  int rank_of_layer(std::int64_t layer) const;

  // The passes of a rank of several.
  const std::vector<PipelinePass>& passes(int rank) const {
    return schedule[static_cast<std::size_t>(rank)];
  }
};

// The pipeline without the backward passes of stages all of whose layers are below `layer`, the
// lowest one with a backward pass. The last stage keeps its passes: it has the head.
Pipeline without_backward_below(Pipeline pipeline, std::int64_t layer);

// Throws an Error that names rank and cell unless ranks receive in the order in which their
// neighbours send. check_schedule must accept the schedule.
void check_message_order(const PipelineSchedule& schedule, const PipelineShape& shape);

// The pipeline of a model of `layers` layers. `blocks`: those of each stage; empty: as even as
// possible. `schedule` replaces 1F1B or interleaved 1F1B. Throws an Error if the model cannot be
// divided like this, or if the schedule cannot run.
Pipeline make_pipeline(const PipelineShape& shape, std::int64_t layers,
                       const std::vector<std::int64_t>& blocks = {},
                       std::optional<PipelineSchedule> schedule = {});

}  // namespace llmc
