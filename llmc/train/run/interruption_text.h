// Texts that a signal handler prints about a run. They are composed without the functions that a
// handler must not call: no allocation, no locale, no stdio.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmc {

// The work of a run when a signal arrives; between: none of the others.
enum class RunActivity : std::int32_t { between, step, validation, evaluation, sampling, saving };

// The state of a run, as a signal handler sees it.
struct RunMoment {
  RunActivity activity = RunActivity::between;
  std::int64_t step = 0;         // of a training step: its number; otherwise the steps done
  std::int64_t saved_step = -1;  // the newest checkpoint; -1: none
  bool training = true;          // false: with --steps 0, only evaluates
  bool saves = false;            // whether the run has --out
};

// A text of fixed capacity; what does not fit is cut.
class SignalText {
 public:
  SignalText& add(std::string_view part) {
    const std::size_t count = std::min(part.size(), sizeof text_ - size_);
    std::copy_n(part.data(), count, text_ + size_);
    size_ += count;
    return *this;
  }

  // `number` is at least 0.
  SignalText& add(std::int64_t number) {
    char digits[20];
    std::size_t begin = sizeof digits;
    do {
      digits[--begin] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return add(std::string_view(digits + begin, sizeof digits - begin));
  }

  std::string_view view() const { return {text_, size_}; }

 private:
  char text_[240];
  std::size_t size_ = 0;
};

inline std::string_view signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

namespace interruption_detail {

inline std::string_view stopping_text(RunActivity activity) {
  switch (activity) {
    case RunActivity::between:
      return "ending";
    case RunActivity::step:
      return "finishing step ";
    case RunActivity::validation:
      return "stopping the validation";
    case RunActivity::evaluation:
      return "stopping the evaluation";
    case RunActivity::sampling:
      return "stopping the samples";
    case RunActivity::saving:
      return "finishing the save of step ";
  }
  return "ending";
}

}  // namespace interruption_detail

// Appends the answer to the first signal: what the run still does, and what a second signal does.
inline void add_first_answer(SignalText& text, const RunMoment& run) {
  constexpr std::string_view kAtOnce = "; send the signal again to end at once";
  constexpr std::string_view kUnsaved = "; send the signal again to end without saving";
  const bool names_step = run.activity == RunActivity::step || run.activity == RunActivity::saving;
  text.add(interruption_detail::stopping_text(run.activity));
  if (!run.training) {
    text.add(kAtOnce);
    return;
  }
  if (!names_step) text.add(run.step == 0 ? " before step 1" : " after step ");
  if (names_step || run.step > 0) text.add(run.step);
  if (run.activity == RunActivity::saving) {
    text.add(kUnsaved);
  } else if (run.step == 0) {
    text.add(", nothing to save yet").add(kAtOnce);
  } else if (!run.saves) {
    text.add(", without --out nothing is saved").add(kAtOnce);
  } else if (run.saved_step == run.step) {
    text.add(", which is saved").add(kAtOnce);
  } else {
    text.add(", then saving").add(kUnsaved);
  }
}

// Appends the message of a run that a second signal ends at once: what was saved before.
inline void add_final_message(SignalText& text, const RunMoment& run, int signal) {
  text.add("ended at once by a second ").add(signal_name(signal)).add(": ");
  if (run.saved_step < 0) {
    text.add("nothing was saved");
  } else if (run.activity != RunActivity::step && run.saved_step == run.step) {
    text.add("step ").add(run.step).add(" is saved");
  } else {
    text.add("nothing was saved after step ").add(run.saved_step);
  }
}

}  // namespace llmc
