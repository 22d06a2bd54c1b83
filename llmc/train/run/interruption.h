// Treats stop signals (base/signal_request.h) as a request to finish the current step, save and
// end. A run calls Interruption::requested() between steps and in evaluations. The first signal is
// answered at once with one line on stderr. Before the first step there is nothing to save, so a
// signal ends the process.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/signal_thread.h"
#include "llmc/train/run/interruption_text.h"

namespace llmc {

// Ctrl-C also ends a program that reads our messages, such as `tee`, and the run must still save.
// After a signal the process ends, so its duplicates must not kill it. A process may have only one
// object at a time.
class Interruption {
 public:
  // `saves`: the run has --out. `training`: false for a run that only evaluates.
  explicit Interruption(bool saves = false, bool training = true);
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption() {
    if (requested()) pipe_.keep();
  }

  // From now on, signals are requests.
  void begin();

  // Whether a signal has arrived.
  static bool requested() { return SignalRequest::requested(); }

  // The first signal that arrived; 0: none.
  static int signal() { return SignalRequest::signal(); }
  // Another rank has received a signal: it counts as received here.
  static void adopt(int signal) { SignalRequest::adopt(signal); }

  // The name of the first signal that arrived, such as "SIGINT".
  static std::string name() { return std::string(signal_name(signal())); }

  // Sets the state that the answer to a signal names from now on. `step`: see RunMoment.
  static void set_activity(RunActivity activity, std::int64_t step);
  static void set_saved(std::int64_t step);

  // Calls observe(step, activity) now and at each later set_activity(). Empty: none.
  static void set_observer(std::function<void(std::int64_t, const std::string&)> observe);

 private:
  static RunMoment moment();

  static void answer_first() {
    if (!Notice::quiet()) Notice::interject(first_answer(moment()));
  }
  static void answer_last(int signal) { Notice::interject(final_message(moment(), signal)); }

  static inline std::mutex mutex_;
  static inline RunMoment moment_;
  static inline std::function<void(std::int64_t, const std::string&)> observe_;

  IgnoredPipeSignal pipe_;
  std::optional<SignalRequest> request_;
};

}  // namespace llmc
