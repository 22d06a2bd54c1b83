// The estimated time until the end of a run: what is left of each kind of work, times the measured
// time of that kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace llmc {

// Kinds of work in a run, each with a time of its own. The final samples are written once, after
// the last step.
enum class WorkKind { step, validation, sample, save, tasks, final_samples };

// Knows no clock: the run reports how long each piece of work took.
class Eta {
 public:
  // `work` is due `count` more times.
  void add_left(WorkKind work, std::int64_t count) { kind_of(work).left += count; }

  // Sets the assumed cost of `work` until it is measured: the time of `steps` steps, plus
  // `seconds`.
  void set_guess(WorkKind work, double steps, double seconds = 0);

  // Reports a finished piece of work. The first step is not measured: libraries allocate memory and
  // choose algorithms in it.
  void finished(WorkKind work, double seconds);

  // Seconds from now to the end of the run. Unknown until the second step is done.
  std::optional<double> seconds_left() const;

 private:
  struct Kind {
    std::int64_t left = 0;
    double guess_steps = 0, guess_seconds = 0;
    double seconds = 0, count = 0;  // sums in which older measurements fade

    std::optional<double> mean() const {
      return count > 0 ? std::optional(seconds / count) : std::nullopt;
    }

    // A mean over about the last minute of this kind of work follows changes of the speed.
    void measure(double duration);
  };

  Kind& kind_of(WorkKind work) { return kinds_[static_cast<std::size_t>(work)]; }

  std::array<Kind, 6> kinds_ = {};
  bool first_step_done_ = false;
};

}  // namespace llmc
