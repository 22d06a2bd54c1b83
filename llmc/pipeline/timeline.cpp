#include "llmc/pipeline/timeline.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>

#include "llmc/base/error.h"

namespace llmc {

double PipelineTimeline::begin() const {
  double first = ranks[0].front().begin;
  for (const auto& passes : ranks) first = std::min(first, passes.front().begin);
  return first;
}

double PipelineTimeline::duration() const {
  double last = ranks[0].back().end;
  for (const auto& passes : ranks) last = std::max(last, passes.back().end);
  return last - begin();
}

double PipelineTimeline::bubble() const {
  double busy = 0;
  for (const auto& passes : ranks) {
    for (const TimedPass& t : passes) busy += t.end - t.begin;
  }
  return duration() * static_cast<double>(ranks.size()) / busy - 1;
}

namespace pipeline_detail {

namespace {

// A number for each pass, 0 at first.
class PassNumbers {
 public:
  explicit PassNumbers(const PipelineShape& shape)
      : micro_batches_(shape.micro_batches),
        numbers_(static_cast<std::size_t>(2 * shape.stages() * shape.micro_batches)) {}

  int& of(const PipelinePass& pass) {
    const int direction = pass.kind == PassKind::forward ? 0 : 1;
    return numbers_[static_cast<std::size_t>((pass.stage * 2 + direction) * micro_batches_ +
                                             pass.micro_batch)];
  }

 private:
  int micro_batches_;
  std::vector<int> numbers_;
};

// The pass whose result `pass` reads, if there is one.
std::optional<PipelinePass> input_of(const PipelinePass& pass, int last_stage) {
  if (pass.kind == PassKind::forward) {
    if (pass.stage == 0) return {};
    return PipelinePass{pass.stage - 1, PassKind::forward, pass.micro_batch};
  }
  if (pass.stage == last_stage)
    return PipelinePass{pass.stage, PassKind::forward, pass.micro_batch};
  return PipelinePass{pass.stage + 1, PassKind::backward, pass.micro_batch};
}

[[noreturn]] void fail_deadlock(const PipelineSchedule& schedule,
                                const std::vector<std::size_t>& next, int last_stage) {
  std::string waits;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (next[rank] == schedule[rank].size()) continue;
    const PipelinePass& pass = schedule[rank][next[rank]];
    waits += (waits.empty() ? "" : "; ") + cell(rank, pass) + " waits for " +
             input_of(pass, last_stage)->name();
  }
  fail("pipeline schedule: deadlock: " + waits,
       "a pass must come after those that it waits for, in the order of every rank");
}

// The stages before this one, in which nothing learns, have no backward passes.
int lowest_backward(const PipelineSchedule& schedule, int last_stage) {
  int lowest = last_stage;
  for (const auto& passes : schedule) {
    for (const PipelinePass& pass : passes)
      if (pass.kind == PassKind::backward) lowest = std::min(lowest, pass.stage);
  }
  return lowest;
}

}  // namespace

}  // namespace pipeline_detail

namespace {

// Throws an Error that names the rank and the cell unless every rank computes each pass of its own
// stages once, each backward pass after its forward pass.
void check_passes(const PipelineSchedule& schedule, const PipelineShape& shape) {
  using pipeline_detail::cell;
  require(std::ssize(schedule) == shape.ranks,
          "pipeline schedule: " + std::to_string(schedule.size()) +
              " rows; allowed: " + std::to_string(shape.ranks) + ", one per rank of the pipeline");
  pipeline_detail::PassNumbers seen(shape);
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    for (const PipelinePass& pass : schedule[rank]) {
      const std::string where = "pipeline schedule: " + cell(rank, pass) + ": ";
      require(pass.stage >= 0 && pass.stage < shape.stages() &&
                  shape.rank_of(pass.stage) == static_cast<int>(rank),
              where + "this rank does not have stage " + std::to_string(pass.stage),
              "stage s of " + std::to_string(shape.stages()) + " is on rank s mod " +
                  std::to_string(shape.ranks));
      require(pass.micro_batch >= 0 && pass.micro_batch < shape.micro_batches,
              where + "allowed micro-batches: 0 to " + std::to_string(shape.micro_batches - 1));
      require(seen.of(pass) == 0, where + "the pass is there twice");
      seen.of(pass) = 1;
      require(pass.kind == PassKind::forward ||
                  seen.of({pass.stage, PassKind::forward, pass.micro_batch}) > 0,
              where + "a backward pass before its forward pass");
    }
  }
  for (int stage = 0; stage < shape.stages(); ++stage) {
    for (const PassKind kind : {PassKind::forward, PassKind::backward}) {
      for (int m = 0; m < shape.micro_batches; ++m) {
        const PipelinePass pass{stage, kind, m};
        require(seen.of(pass) > 0, "pipeline schedule: rank " +
                                       std::to_string(shape.rank_of(stage)) + ": " + pass.name() +
                                       " is missing");
      }
    }
  }
}

}  // namespace

OrderedSchedule::OrderedSchedule(const PipelineSchedule& schedule, const PipelineShape& shape) {
  using namespace pipeline_detail;
  const int last_stage = shape.stages() - 1, first_backward = lowest_backward(schedule, last_stage);
  std::size_t num_steps = 0;
  for (const auto& passes : schedule) {
    num_passes_.push_back(passes.size());
    num_steps += passes.size();
  }
  steps_.reserve(num_steps);
  PassNumbers steps(shape);
  std::vector<std::size_t> next(schedule.size());
  // Appends the passes of a rank until one has to wait; returns whether there are any.
  const auto advance = [&](std::size_t rank) {
    const std::size_t before = next[rank];
    for (std::size_t& i = next[rank]; i < schedule[rank].size(); ++i) {
      const PipelinePass& pass = schedule[rank][i];
      const std::optional<PipelinePass> read = input_of(pass, last_stage);
      const int input = read ? steps.of(*read) : 0;
      if (read && input == 0) break;
      const bool is_forward = pass.kind == PassKind::forward;
      // Neighbouring stages are on different ranks.
      const bool is_sent =
          shape.ranks > 1 && pass.stage != (is_forward ? last_stage : first_backward);
      const int number = static_cast<int>(rank), link = 2 * number + (is_forward ? 0 : 1);
      steps_.push_back({pass, number, input, is_sent ? link : kNoLink});
      steps.of(pass) = static_cast<int>(steps_.size());
    }
    return next[rank] != before;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) moved = advance(rank) || moved;
  }
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (next[rank] < schedule[rank].size()) fail_deadlock(schedule, next, last_stage);
  }
}

// Calls on_pass(step, begin, end) and on_message(step, begin, end) for each pass and message.
template <class OnPass, class OnMessage>
void OrderedSchedule::simulate(const PassCosts& costs, const OnPass& on_pass,
                               const OnMessage& on_message) const {
  // When results are where they are read, and when ranks and links can begin the next one.
  std::vector<double> arrivals(steps_.size() + 1), ranks(num_passes_.size()),
      links(2 * ranks.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    double& free_from = ranks[static_cast<std::size_t>(step.rank)];
    const double begin = std::max(arrivals[static_cast<std::size_t>(step.input)], free_from);
    const double end = begin + costs.pass(step.pass);
    on_pass(step, begin, end);
    double arrival = free_from = end;
    if (step.link != kNoLink && costs.message > 0) {
      double& link = links[static_cast<std::size_t>(step.link)];
      const double sent = std::max(link, end);
      arrival = link = sent + costs.message;
      on_message(step, sent, arrival);
      if (!costs.overlaps_messages) free_from = arrival;
    }
    arrivals[i + 1] = arrival;
  }
}

PipelineTimeline OrderedSchedule::timeline(const PassCosts& costs) const {
  const std::size_t ranks = num_passes_.size();
  PipelineTimeline timeline;
  timeline.ranks.resize(ranks);
  if (costs.message > 0 && ranks > 1) timeline.messages.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    timeline.ranks[rank].reserve(num_passes_[rank]);
    if (!timeline.messages.empty()) timeline.messages[rank].reserve(num_passes_[rank]);
  }
  simulate(
      costs,
      [&](const Step& step, double begin, double end) {
        timeline.ranks[static_cast<std::size_t>(step.rank)].push_back({step.pass, begin, end});
      },
      [&](const Step& step, double begin, double end) {
        timeline.messages[static_cast<std::size_t>(step.rank)].push_back({step.pass, begin, end});
      });
  return timeline;
}

double OrderedSchedule::duration(const PassCosts& costs) const {
  // A schedule begins at 0, with the first pass of rank 0.
  std::vector<double> ends(num_passes_.size());
  simulate(
      costs,
      [&](const Step& step, double, double end) {
        ends[static_cast<std::size_t>(step.rank)] = end;
      },
      [](const Step&, double, double) {});
  return *std::ranges::max_element(ends);
}

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const PassCosts& costs) {
  return OrderedSchedule(schedule, shape).timeline(costs);
}

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const std::function<double(const PipelinePass&)>& cost) {
  return pipeline_timeline(schedule, shape, PassCosts{.pass = cost});
}

PipelineTimeline timeline_in_steps(const PipelineSchedule& schedule, const PipelineShape& shape) {
  return pipeline_timeline(schedule, shape, [](const PipelinePass&) { return 1.0; });
}

void check_schedule(const PipelineSchedule& schedule, const PipelineShape& shape) {
  check_passes(schedule, shape);
  OrderedSchedule(schedule, shape);
}

}  // namespace llmc
