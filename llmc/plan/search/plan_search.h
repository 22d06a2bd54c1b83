// --plan: predicts the step time of each layout that a run could have, checks the memory of the
// fastest ones as the allocator would reserve it, and ranks them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/plan/search/layouts.h"
#include "llmc/plan/time/step_time.h"

namespace llmc {

enum class PlanStatus { fits, slower, too_large, refused };

struct PlannedLayout {
  Layout layout;
  PlanStatus status = PlanStatus::slower;
  StepTime time;            // slower: only `total`, which is a lower bound
  std::int64_t bytes = 0;   // of the rank that needs the most; 0: not computed
  GroupBytes sent;          // if they are counted
  std::string reason = {};  // why it is not ranked
};

struct PlanResult {
  std::vector<PlannedLayout> layouts;  // those that fit, by time, then the others
  std::vector<RefusedLayouts> refused;
  std::size_t num_fitting = 0;
  std::int64_t tokens_per_step = 0;
  TimedModel model;
};

// `limit`: bytes of memory that a rank can use. `top`: number of layouts to rank. The flags and
// facts are those of a run with facts.ranks ranks. Throws if the flags conflict.
PlanResult search_plan(const Request& typed, const RunFacts& facts, StepPredictor& predictor,
                       std::int64_t limit, std::size_t top);

// Bytes that a layout may have per rank: of `gibibytes` of GPU memory, or of the machine's if 0. On
// a GPU kMemoryReserve stays free.
std::int64_t memory_limit(const Machine& machine, double gibibytes);

// The sizes of a model that decide times, and what of it learns (choose_trainable).
TimedModel timed_model(const RunConfig& config);

}  // namespace llmc
