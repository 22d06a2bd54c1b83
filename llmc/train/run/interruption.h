// Treats SIGINT and SIGTERM as a request to finish the current step and end
// (base/signal_request.h). A run calls Interruption::requested() between steps and in evaluations.
// The first signal is answered at once with one line on stderr.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "llmc/base/notice.h"
#include "llmc/base/signal_request.h"
#include "llmc/train/run/interruption_text.h"

namespace llmc {

// Ctrl-C also ends a program that reads our messages, such as `tee`, and the run must still save.
// After a signal the process ends, so its duplicates must not kill it. A process may have only one
// object at a time.
class Interruption {
 public:
  // `saves`: the run has --out. `training`: false for a run that only evaluates.
  explicit Interruption(bool saves = false, bool training = true)
      : request_(SignalRequest::AfterRequest::keep, start(saves, training)) {}

  // Whether a signal has arrived.
  static bool requested() { return SignalRequest::requested(); }

  // The first signal that arrived; 0: none.
  static int signal() { return SignalRequest::signal(); }
  // Another rank has received a signal: it counts as received here.
  static void adopt(int signal) { SignalRequest::adopt(signal); }

  // "SIGINT" or "SIGTERM", the first signal that arrived.
  static const char* name() { return signal_name(signal()).data(); }

  // Sets the state that the answer to a signal names from now on. `step`: see RunMoment.
  static void set_activity(RunActivity activity, std::int64_t step) {
    step_.store(step);
    activity_.store(activity);
  }
  static void set_saved(std::int64_t step) { saved_step_.store(step); }

 private:
  // Sets the state of a run that begins. Returns the answers to its signals.
  static SignalAnswers start(bool saves, bool training) {
    activity_.store(RunActivity::between);
    step_.store(0);
    saved_step_.store(-1);
    saves_.store(saves);
    training_.store(training);
    return {.first = answer_first, .last = answer_last};
  }

  static RunMoment moment() {
    return {activity_.load(), step_.load(), saved_step_.load(), training_.load(), saves_.load()};
  }

  static void answer_first() {
    if (Notice::quiet()) return;
    answer([](SignalText& text) { add_first_answer(text, moment()); });
  }
  static void answer_last(int signal) {
    answer([signal](SignalText& text) { add_final_message(text, moment(), signal); });
  }

  template <class Add>
  static void answer(const Add& add) {
    SignalText text;
    if (Notice::take_live_line()) text.add("\n");
    add(text);
    text.add("\n");
    // If stderr cannot be written, the answer is lost; the request still counts.
    (void)!::write(STDERR_FILENO, text.view().data(), text.view().size());
  }

  static_assert(std::atomic<RunActivity>::is_always_lock_free &&
                    std::atomic<bool>::is_always_lock_free,
                "a handler must not wait for a lock");
  static inline std::atomic<std::int64_t> step_{0}, saved_step_{-1};
  static inline std::atomic<RunActivity> activity_{RunActivity::between};
  static inline std::atomic<bool> saves_{false}, training_{true};

  SignalRequest request_;
};

}  // namespace llmc
