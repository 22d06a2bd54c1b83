#include "llmc/pipeline/timeline.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

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

// Before the end of any pass. Even times that are not finite differ from it, unless a pass takes
// minus infinity.
constexpr double kNotYet = -std::numeric_limits<double>::infinity();

// The times at which the results of passes are where they are read.
class Arrivals {
 public:
  explicit Arrivals(const PipelineShape& shape)
      : micro_batches_(static_cast<std::size_t>(shape.micro_batches)),
        last_stage_(shape.stages() - 1),
        times_(2 * micro_batches_ * static_cast<std::size_t>(shape.stages() + 1), kNotYet) {
    std::fill_n(times_.begin(), micro_batches_, 0);
  }

  double& of(const PipelinePass& pass) { return times_[index(pass)]; }
  bool have(const PipelinePass& pass) const { return times_[index(pass)] != kNotYet; }

  // The arrival of what `pass` reads: 0 for the first stage, kNotYet before it.
  double of_input(const PipelinePass& pass) const {
    const std::size_t own = index(pass);
    if (pass.kind == PassKind::forward) return times_[own - 2 * micro_batches_];
    return times_[pass.stage == last_stage_ ? own - micro_batches_ : own + 2 * micro_batches_];
  }

  // The pass whose result `pass` reads. The first forward pass reads none.
  PipelinePass input(const PipelinePass& pass) const {
    if (pass.kind == PassKind::forward)
      return {pass.stage - 1, PassKind::forward, pass.micro_batch};
    if (pass.stage == last_stage_) return {pass.stage, PassKind::forward, pass.micro_batch};
    return {pass.stage + 1, PassKind::backward, pass.micro_batch};
  }

 private:
  // For each stage its forward passes, then its backward passes. The rows of a stage before the
  // first one are the inputs of the model.
  std::size_t index(const PipelinePass& pass) const {
    const std::size_t direction = pass.kind == PassKind::forward ? 0 : 1;
    return (2 * static_cast<std::size_t>(pass.stage + 1) + direction) * micro_batches_ +
           static_cast<std::size_t>(pass.micro_batch);
  }

  std::size_t micro_batches_;
  int last_stage_;
  std::vector<double> times_;
};

// A rank while a timeline is computed.
struct RankState {
  std::size_t next = 0;                  // the pass to compute, by its place in the order
  double free_from = 0;                  // when it can begin
  double end = 0;                        // of the pass before
  double links[2] = {kNotYet, kNotYet};  // when the last message forward and backward arrives
};

[[noreturn]] void fail_deadlock(const PipelineSchedule& schedule,
                                const std::vector<RankState>& states, const Arrivals& arrivals) {
  std::string waits;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (states[rank].next == schedule[rank].size()) continue;
    const PipelinePass& pass = schedule[rank][states[rank].next];
    waits += (waits.empty() ? "" : "; ") + cell(rank, pass) + " waits for " +
             arrivals.input(pass).name();
  }
  fail("pipeline schedule: deadlock: " + waits,
       "a pass must come after those that it waits for, in the order of every rank");
}

// The stages before this one, in which nothing learns, have no backward passes.
int lowest_backward(const PipelineSchedule& schedule, int last_stage) {
  int lowest = last_stage;
  for (const auto& passes : schedule) {
    for (const PipelinePass& pass : passes)
      lowest = pass.kind == PassKind::backward ? std::min(lowest, pass.stage) : lowest;
  }
  return lowest;
}

// The result of a simulation. A timeline needs so much memory that its page faults cost more than
// the simulation.
enum class Keep { timeline, duration };

// Computes when passes begin and end: each rank in turn advances until it has to wait.
template <Keep keep>
class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const PipelineShape& shape, const PassCosts& costs)
      : schedule_(schedule),
        costs_(costs),
        last_stage_(shape.stages() - 1),
        sends_(costs.message > 0 && shape.ranks > 1),
        arrivals_(shape),
        states_(schedule.size()) {
    if (sends_) first_backward_ = lowest_backward(schedule, last_stage_);
    if (keep == Keep::duration) return;
    timeline_.ranks.resize(schedule.size());
    if (sends_) timeline_.messages.resize(schedule.size());
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
      timeline_.ranks[rank].reserve(schedule[rank].size());
      if (sends_) timeline_.messages[rank].reserve(schedule[rank].size());
    }
  }

  // Throws an Error for a deadlock.
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedule_.size(); ++rank) moved = advance(rank) || moved;
    }
    for (std::size_t rank = 0; rank < schedule_.size(); ++rank) {
      if (states_[rank].next < schedule_[rank].size()) fail_deadlock(schedule_, states_, arrivals_);
    }
  }
  PipelineTimeline timeline() && { return std::move(timeline_); }
  // A schedule begins at 0, with the first pass of rank 0.
  double duration() const {
    double last = states_[0].end;
    for (const RankState& state : states_) last = std::max(last, state.end);
    return last;
  }

 private:
  // Computes the passes of a rank whose input is there; returns whether there are any.
  bool advance(std::size_t rank) {
    const std::vector<PipelinePass>& order = schedule_[rank];
    RankState& state = states_[rank];
    const std::size_t before = state.next;
    for (; state.next < order.size(); ++state.next) {
      const PipelinePass& pass = order[state.next];
      const double ready = arrivals_.of_input(pass);
      if (ready == kNotYet) break;
      const double begin = std::max(ready, state.free_from), end = begin + costs_.pass(pass);
      if (keep == Keep::timeline) timeline_.ranks[rank].push_back({pass, begin, end});
      state.end = state.free_from = end;
      arrivals_.of(pass) = sends_ ? sent(pass, rank, end) : end;
    }
    return state.next != before;
  }

  // When the result of a pass that ends now is where it is read. Neighbouring stages are on
  // different ranks.
  double sent(const PipelinePass& pass, std::size_t rank, double end) {
    const bool is_forward = pass.kind == PassKind::forward;
    if (pass.stage == (is_forward ? last_stage_ : first_backward_)) return end;
    RankState& state = states_[rank];
    double& link = state.links[is_forward ? 0 : 1];
    const double begin = std::max(link, end);
    link = begin + costs_.message;
    if (keep == Keep::timeline) timeline_.messages[rank].push_back({pass, begin, link});
    if (!costs_.overlaps_messages) state.free_from = link;
    return link;
  }

  const PipelineSchedule& schedule_;
  const PassCosts& costs_;
  int last_stage_, first_backward_ = 0;
  bool sends_;
  Arrivals arrivals_;
  std::vector<RankState> states_;
  PipelineTimeline timeline_;
};

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
  pipeline_detail::Arrivals seen(shape);
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
      require(!seen.have(pass), where + "the pass is there twice");
      seen.of(pass) = 0;
      require(pass.kind == PassKind::forward ||
                  seen.have({pass.stage, PassKind::forward, pass.micro_batch}),
              where + "a backward pass before its forward pass");
    }
  }
  for (int stage = 0; stage < shape.stages(); ++stage) {
    for (const PassKind kind : {PassKind::forward, PassKind::backward}) {
      for (int m = 0; m < shape.micro_batches; ++m) {
        const PipelinePass pass{stage, kind, m};
        require(seen.have(pass), "pipeline schedule: rank " + std::to_string(shape.rank_of(stage)) +
                                     ": " + pass.name() + " is missing");
      }
    }
  }
}

}  // namespace

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const PassCosts& costs) {
  pipeline_detail::Simulation<pipeline_detail::Keep::timeline> run(schedule, shape, costs);
  run.run();
  return std::move(run).timeline();
}

double pipeline_duration(const PipelineSchedule& schedule, const PipelineShape& shape,
                         const PassCosts& costs) {
  pipeline_detail::Simulation<pipeline_detail::Keep::duration> run(schedule, shape, costs);
  run.run();
  return run.duration();
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
  timeline_in_steps(schedule, shape);
}

}  // namespace llmc
