#include "llmc/pipeline/timeline.h"

#include <algorithm>
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

// The times at which the results of passes are where they are read.
class Ends {
 public:
  explicit Ends(const PipelineShape& shape)
      : micro_batches_(shape.micro_batches),
        last_stage_(shape.stages() - 1),
        ends_(static_cast<std::size_t>(2 * shape.stages() * shape.micro_batches)) {}

  std::optional<double>& of(const PipelinePass& pass) {
    const int direction = pass.kind == PassKind::forward ? 0 : 1;
    return ends_[static_cast<std::size_t>((pass.stage * 2 + direction) * micro_batches_ +
                                          pass.micro_batch)];
  }
  // The pass whose result `pass` reads, if there is one.
  std::optional<PipelinePass> input(const PipelinePass& pass) const {
    if (pass.kind == PassKind::forward) {
      if (pass.stage == 0) return {};
      return PipelinePass{pass.stage - 1, PassKind::forward, pass.micro_batch};
    }
    if (pass.stage == last_stage_)
      return PipelinePass{pass.stage, PassKind::forward, pass.micro_batch};
    return PipelinePass{pass.stage + 1, PassKind::backward, pass.micro_batch};
  }

 private:
  int micro_batches_, last_stage_;
  std::vector<std::optional<double>> ends_;
};

// The ranks and the links from each to the next and to the one before.
class Links {
 public:
  Links(const PipelineShape& shape, const PassCosts& costs)
      : shape_(shape),
        costs_(costs),
        ranks_(static_cast<std::size_t>(shape.ranks)),
        links_(2 * ranks_.size()) {}

  // When a rank can begin its next pass.
  double free_from(std::size_t rank) const { return ranks_[rank]; }

  // When the result of a pass that ends now is where it is read.
  double arrival(const PipelinePass& pass, std::size_t rank, double end) {
    ranks_[rank] = end;
    const bool is_forward = pass.kind == PassKind::forward;
    const int next = pass.stage + (is_forward ? 1 : -1);
    const bool is_sent = next >= 0 && next < shape_.stages() &&
                         shape_.rank_of(next) != static_cast<int>(rank) && costs_.message > 0;
    if (!is_sent) return end;
    double& link = links_[2 * rank + (is_forward ? 0 : 1)];
    link = std::max(link, end) + costs_.message;
    if (!costs_.overlaps_messages) ranks_[rank] = link;
    return link;
  }

 private:
  PipelineShape shape_;
  const PassCosts& costs_;
  std::vector<double> ranks_, links_;
};

[[noreturn]] void fail_deadlock(const PipelineSchedule& schedule,
                                const std::vector<std::size_t>& next, Ends& ends) {
  std::string waits;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (next[rank] == schedule[rank].size()) continue;
    const PipelinePass& pass = schedule[rank][next[rank]];
    waits +=
        (waits.empty() ? "" : "; ") + cell(rank, pass) + " waits for " + ends.input(pass)->name();
  }
  fail("pipeline schedule: deadlock: " + waits,
       "a pass must come after those that it waits for, in the order of every rank");
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
  pipeline_detail::Ends seen(shape);
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
      require(!seen.of(pass), where + "the pass is there twice");
      seen.of(pass) = 0;
      require(pass.kind == PassKind::forward ||
                  seen.of({pass.stage, PassKind::forward, pass.micro_batch}).has_value(),
              where + "a backward pass before its forward pass");
    }
  }
  for (int stage = 0; stage < shape.stages(); ++stage) {
    for (const PassKind kind : {PassKind::forward, PassKind::backward}) {
      for (int m = 0; m < shape.micro_batches; ++m) {
        const PipelinePass pass{stage, kind, m};
        require(seen.of(pass).has_value(), "pipeline schedule: rank " +
                                               std::to_string(shape.rank_of(stage)) + ": " +
                                               pass.name() + " is missing");
      }
    }
  }
}

}  // namespace

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineShape& shape,
                                   const PassCosts& costs) {
  pipeline_detail::Ends arrivals(shape);
  pipeline_detail::Links links(shape, costs);
  PipelineTimeline timeline;
  timeline.ranks.resize(schedule.size());
  std::vector<std::size_t> next(schedule.size());
  // Computes what a rank can until it has to wait; returns whether there was anything.
  const auto advance = [&](std::size_t rank) {
    const std::size_t before = next[rank];
    for (std::size_t& i = next[rank]; i < schedule[rank].size(); ++i) {
      const PipelinePass& pass = schedule[rank][i];
      const std::optional<PipelinePass> input = arrivals.input(pass);
      if (input && !arrivals.of(*input)) break;
      const double ready = input ? *arrivals.of(*input) : 0;
      const double begin = std::max(ready, links.free_from(rank));
      const double end = begin + costs.pass(pass);
      timeline.ranks[rank].push_back({pass, begin, end});
      arrivals.of(pass) = links.arrival(pass, rank, end);
    }
    return next[rank] != before;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < schedule.size(); ++rank) moved = advance(rank) || moved;
  }
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    if (next[rank] < schedule[rank].size())
      pipeline_detail::fail_deadlock(schedule, next, arrivals);
  }
  return timeline;
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
