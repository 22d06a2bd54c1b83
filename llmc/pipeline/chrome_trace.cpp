#include "llmc/pipeline/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "llmc/base/trace_events.h"

namespace llmc {

namespace {

enum Row : int { kCompute, kActivations, kGradients };

// Adds one rank of a timeline.
class TracedRank {
 public:
  TracedRank(TraceEvents& events, const TracedTimeline& traced, std::size_t rank, int process)
      : events_(events),
        process_(process),
        begin_(traced.timeline.begin()),
        microseconds_(traced.microseconds) {
    const PipelineTimeline& timeline = traced.timeline;
    events_.name_process(process, "rank " + std::to_string(rank) + ", " + traced.name);
    events_.name_thread(process, kCompute, "compute");
    for (const TimedPass& t : timeline.ranks[rank])
      add(t, kCompute, t.pass.kind == PassKind::forward ? "forward" : "backward");
    if (timeline.messages.empty()) return;
    events_.name_thread(process, kActivations, "messages: activations");
    events_.name_thread(process, kGradients, "messages: gradients");
    for (const TimedMessage& t : timeline.messages[rank])
      add(t, t.pass.kind == PassKind::forward ? kActivations : kGradients, "message");
  }

 private:
  template <class Timed>
  void add(const Timed& t, Row row, const char* category) {
    events_.add({.process = process_,
                 .thread = row,
                 .name = t.pass.name(),
                 .category = category,
                 .begin = (t.begin - begin_) * microseconds_,
                 .end = (t.end - begin_) * microseconds_,
                 .args = {{"stage", std::int64_t{t.pass.stage}},
                          {"micro_batch", std::int64_t{t.pass.micro_batch}}}});
  }

  TraceEvents& events_;
  int process_;
  double begin_, microseconds_;
};

}  // namespace

std::string chrome_trace(const std::vector<TracedTimeline>& timelines) {
  TraceEvents events;
  std::size_t ranks = 0;
  for (const TracedTimeline& traced : timelines)
    ranks = std::max(ranks, traced.timeline.ranks.size());
  int process = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const TracedTimeline& traced : timelines) {
      if (rank < traced.timeline.ranks.size()) TracedRank(events, traced, rank, process);
      ++process;
    }
  }
  return events.text();
}

}  // namespace llmc
