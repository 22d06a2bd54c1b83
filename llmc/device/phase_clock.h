// The time that a stream spends in each phase of a step. Between two marks, the time belongs to the
// phase of the first one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "llmc/device/stream.h"

namespace llmc {

// In the phases of communication, the compute stream waits for ranks of its tensor group, exchanges
// messages with pipeline ranks, or waits for ranks with the same part of the model. In the phase
// `bubble` it waits until a pipeline rank has computed what it needs, in `offload` for state that
// is not on the device.
enum class Phase {
  data,
  forward,
  backward,
  recompute,
  offload,
  tensor_communication,
  pipeline_communication,
  data_communication,
  bubble,
  optimizer,
  other
};
inline constexpr std::size_t kPhases = 11;
using PhaseTimes = std::array<double, kPhases>;  // milliseconds

class PhaseClock {
 public:
  // Forgets the last step. Time begins in phase `other`.
  void start(Stream& stream) {
    num_marks_ = 0;
    mark(Phase::other, stream);
  }

  // Later work of the stream belongs to this phase. Returns the phase of the work before.
  Phase mark(Phase phase, Stream& stream) {
    if (num_marks_ == marks_.size()) marks_.push_back(std::make_unique<Mark>());
    const Phase before = num_marks_ == 0 ? Phase::other : marks_[num_marks_ - 1]->phase;
    Mark& mark = *marks_[num_marks_++];
    mark.phase = phase;
    mark.event.record(stream);
    return before;
  }

  // The time of each phase up to the last mark, for which it waits.
  PhaseTimes milliseconds() {
    PhaseTimes times{};
    if (num_marks_ == 0) return times;
    marks_[num_marks_ - 1]->event.synchronize();
    for (std::size_t i = 0; i + 1 < num_marks_; ++i) {
      times[static_cast<std::size_t>(marks_[i]->phase)] +=
          milliseconds_between(marks_[i]->event, marks_[i + 1]->event);
    }
    return times;
  }

 private:
  struct Mark {
    Phase phase = Phase::other;
    Event event;
  };

  std::vector<std::unique_ptr<Mark>> marks_;  // reused in each step
  std::size_t num_marks_ = 0;
};

// Calls work(), whose part of the stream belongs to `phase`; the phase before continues after it.
template <class Work>
void timed_phase(PhaseClock* clock, Phase phase, Stream& stream, const Work& work) {
  if (clock == nullptr) return work();
  const Phase before = clock->mark(phase, stream);
  work();
  clock->mark(before, stream);
}

}  // namespace llmc
