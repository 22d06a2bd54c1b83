// Time per operation. Profiler::begin_step sets a profiler on a stream; without one, a ProfileScope
// only tests a pointer. Every operation opens a scope:
//
//   void gelu_forward(..., Stream& stream) {
//     const ProfileScope scope("gelu forward", stream);
//     ...
//   }
//
// Scopes nest: inner scopes are parts of the outer one. Time is measured on the stream, between two
// events around the work, so nothing waits inside a step. On a GPU it includes gaps in which the
// stream has no work yet. On the host, where work runs immediately, events are clock readings.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/work_progress.h"
#include "llmc/device/ranges.h"
#include "llmc/device/stream.h"
#include "llmc/device/tensor.h"

namespace llmc {

// Work of an operation, counted only if its sizes determine it.
struct Work {
  double flops = 0;
  double bytes = 0;  // bytes read plus bytes written, each operand once
};

// Work of an operation that reads or writes each of these tensors once.
template <class... Tensors>
Work memory_traffic(const Tensors&... tensors) {
  return {.flops = 0,
          .bytes = ((static_cast<double>(tensors.size()) * sizeof(*tensors.data)) + ...)};
}

class Profiler {
 public:
  // Totals of one operation inside one parent, over all its calls in all steps.
  struct Entry {
    std::string name;
    std::size_t parent = 0;
    int depth = 0;  // 0: the step itself
    std::int64_t calls = 0;
    double milliseconds = 0;
    Work work{};
  };

  // One call of an operation in a step, in milliseconds from the begin of the step.
  struct Call {
    std::string name;
    double begin = 0, end = 0;
  };

  Profiler() { entries_.push_back({.name = "step"}); }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Operations on `stream` are timed between begin_step and end_step. end_step waits for the
  // stream.
  void begin_step(Stream& stream) {
    require(open_.empty(), "a profiled step begins inside another");
    stream.profile(this);
    open_.push_back(mark(0, stream));
  }
  void end_step(Stream& stream) {
    require(open_.size() == 1, "a profiled step ends inside an operation");
    end(stream);
    stream.profile(nullptr);
    stream.synchronize();
    calls_.clear();
    for (const Mark& mark : marks_) {
      Entry& entry = entries_[mark.entry];
      entry.calls += 1;
      entry.milliseconds += milliseconds_between(events_[mark.begin], events_[mark.end]);
      if (keeps_calls_)
        calls_.push_back({entry.name, since_begin(mark.begin), since_begin(mark.end)});
    }
    marks_.clear();
    num_used_events_ = 0;
    ++steps_;
  }

  // Called by ProfileScope, in pairs.
  void begin(const char* name, Stream& stream) {
    begin_range(name);
    open_.push_back(mark(entry_index(name, marks_[open_.back()].entry), stream));
  }
  void end(Stream& stream) {
    marks_[open_.back()].end = record(stream);
    open_.pop_back();
    if (!open_.empty()) end_range();
  }
  void add(const Work& work) {
    Work& sum = entries_[marks_[open_.back()].entry].work;
    sum.flops += work.flops;
    sum.bytes += work.bytes;
  }

  std::int64_t steps() const { return steps_; }

  // From now on, last_calls() has the calls of the last step: the step itself first, then each call
  // before those inside it.
  void keep_calls() { keeps_calls_ = true; }
  const std::vector<Call>& last_calls() const { return calls_; }

  // Returns the step first, then each operation before its parts, in the order of first calls.
  std::vector<Entry> entries() const {
    std::vector<Entry> sorted{entries_[0]};
    append_parts(0, 0, sorted);
    return sorted;
  }

 private:
  // One call: the indices of its entry and of its two events.
  struct Mark {
    std::size_t entry, begin, end;
  };

  // The step begins with the first event.
  double since_begin(std::size_t event) const {
    return event == 0 ? 0 : milliseconds_between(events_[0], events_[event]);
  }

  std::size_t mark(std::size_t entry, Stream& stream) {
    marks_.push_back({entry, record(stream), 0});
    return marks_.size() - 1;
  }

  // Events are created once and reused in every step.
  std::size_t record(Stream& stream) {
    if (num_used_events_ == events_.size()) events_.emplace_back();
    events_[num_used_events_].record(stream);
    return num_used_events_++;
  }

  std::size_t entry_index(const char* name, std::size_t parent) {
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      if (entries_[i].parent == parent && entries_[i].name == name) return i;
    }
    entries_.push_back(
        {.name = name, .parent = parent, .depth = entries_[parent].depth + 1, .work = {}});
    return entries_.size() - 1;
  }

  void append_parts(std::size_t parent, std::size_t sorted_parent,
                    std::vector<Entry>& sorted) const {
    for (std::size_t i = 1; i < entries_.size(); ++i) {
      if (entries_[i].parent != parent) continue;
      sorted.push_back(entries_[i]);
      sorted.back().parent = sorted_parent;
      append_parts(i, sorted.size() - 1, sorted);
    }
  }

  std::vector<Entry> entries_;
  std::vector<Mark> marks_;        // calls of the current step
  std::vector<std::size_t> open_;  // indices of the open calls in marks_, outermost first
  std::deque<Event> events_;       // a deque: Event is not movable
  std::size_t num_used_events_ = 0;
  std::int64_t steps_ = 0;
  bool keeps_calls_ = false;
  std::vector<Call> calls_;  // of the last step
};

// Attributes the time from construction to destruction to `name`, a string literal.
class ProfileScope {
 public:
  ProfileScope(const char* name, Stream& stream) : stream_(stream), profiler_(stream.profiler()) {
    ProgressCount::add();
    if (profiler_ != nullptr) profiler_->begin(name, stream_);
  }
  ProfileScope(const char* name, Stream& stream, const Work& work) : ProfileScope(name, stream) {
    if (profiler_ != nullptr) profiler_->add(work);
  }
  ~ProfileScope() {
    if (profiler_ == nullptr) return;
    try {
      profiler_->end(stream_);
    } catch (const Error&) {
      // The stream accepts no more work; the next synchronisation reports the error.
    }
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Stream& stream_;
  Profiler* profiler_;
};

// Adds `work` to the innermost open scope.
inline void count_work(const Work& work, Stream& stream) {
  if (stream.profiler() != nullptr) stream.profiler()->add(work);
}

}  // namespace llmc
