// Treats SIGINT and SIGTERM as a request to finish the current step and end. A run calls
// Interruption::requested() between steps and in evaluations. The first signal is answered at once
// with one line on stderr. Signals within two seconds of the first one count as the same request:
// `timeout`, Slurm and mpirun signal a process and its group. A later signal ends the process.
#pragma once

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "llmc/base/notice.h"
#include "llmc/train/run/interruption_text.h"

namespace llmc {

// While an object exists, the two signals are only recorded. The destructor restores their previous
// actions, unless a signal has arrived: the process ends then, and its duplicates must not kill it.
// A signal that was ignored (SIGINT of a shell's background job) stays ignored. SIGPIPE is ignored
// as well: Ctrl-C also ends a program that reads our messages, such as `tee`, and the run must
// still save. A process may have only one object at a time.
class Interruption {
 public:
  static constexpr std::int64_t kSameRequestNanoseconds = 2'000'000'000;

  // `saves`: the run has --out. `training`: false for a run that only evaluates.
  explicit Interruption(bool saves = false, bool training = true) {
    signal_.store(0);
    first_time_.store(0);
    activity_.store(RunActivity::between);
    step_.store(0);
    saved_step_.store(-1);
    saves_.store(saves);
    training_.store(training);
    struct sigaction record_action {};
    record_action.sa_handler = record;
    record_action.sa_flags = SA_RESTART;
    sigemptyset(&record_action.sa_mask);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&record_action.sa_mask, signal);
    for (SavedAction& saved : saved_actions_) {
      ::sigaction(saved.signal, nullptr, &saved.action);
      if (!is_ignored(saved)) ::sigaction(saved.signal, &record_action, nullptr);
    }
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigemptyset(&ignore.sa_mask);
    ::sigaction(SIGPIPE, &ignore, &pipe_action_);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption() {
    if (requested()) return;
    ::sigaction(SIGPIPE, &pipe_action_, nullptr);
    for (const SavedAction& saved : saved_actions_) {
      if (!is_ignored(saved)) ::sigaction(saved.signal, &saved.action, nullptr);
    }
  }

  // Whether a signal has arrived.
  static bool requested() { return signal_.load() != 0; }

  // The first signal that arrived; 0: none.
  static int signal() { return signal_.load(); }
  // Another rank has received a signal: it counts as received here.
  static void adopt(int signal) {
    int none = 0;
    signal_.compare_exchange_strong(none, signal);
  }

  // "SIGINT" or "SIGTERM", the first signal that arrived.
  static const char* name() { return signal_name(signal_.load()).data(); }

  // Sets the state that the answer to a signal names from now on. `step`: see RunMoment.
  static void set_activity(RunActivity activity, std::int64_t step) {
    step_.store(step);
    activity_.store(activity);
  }
  static void set_saved(std::int64_t step) { saved_step_.store(step); }

 private:
  // The action of a signal before the object existed.
  struct SavedAction {
    int signal;
    struct sigaction action;
  };

  static bool is_ignored(const SavedAction& saved) { return saved.action.sa_handler == SIG_IGN; }

  static RunMoment moment() {
    return {activity_.load(), step_.load(), saved_step_.load(), training_.load(), saves_.load()};
  }

  // Signal handler: calls only functions that POSIX lists as async-signal-safe. Several threads may
  // run it at the same time.
  static void record(int signal) {
    const int saved_errno = errno;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t time = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    std::int64_t first = 0;
    if (first_time_.compare_exchange_strong(first, time)) {
      signal_.store(signal);
      answer([](SignalText& text) { add_first_answer(text, moment()); }, Notice::quiet());
    } else if (time - first >= kSameRequestNanoseconds) {
      answer([signal](SignalText& text) { add_final_message(text, moment(), signal); }, false);
      end_process(signal);
    }
    errno = saved_errno;
  }

  template <class Add>
  static void answer(const Add& add, bool quiet) {
    if (quiet) return;
    SignalText text;
    if (Notice::take_live_line()) text.add("\n");
    add(text);
    text.add("\n");
    // If stderr cannot be written, the answer is lost; the request still counts.
    (void)!::write(STDERR_FILENO, text.view().data(), text.view().size());
  }

  // The signal is blocked here; it arrives, with its default action, when the handler returns.
  static void end_process(int signal) {
    struct sigaction default_action {};
    default_action.sa_handler = SIG_DFL;
    sigemptyset(&default_action.sa_mask);
    ::sigaction(signal, &default_action, nullptr);
    ::raise(signal);
  }

  static_assert(std::atomic<std::int64_t>::is_always_lock_free &&
                    std::atomic<RunActivity>::is_always_lock_free &&
                    std::atomic<bool>::is_always_lock_free,
                "a handler must not wait for a lock");
  static inline std::atomic<int> signal_{0};               // the first one; 0: none
  static inline std::atomic<std::int64_t> first_time_{0};  // nanoseconds; 0: no signal yet
  static inline std::atomic<std::int64_t> step_{0}, saved_step_{-1};
  static inline std::atomic<RunActivity> activity_{RunActivity::between};
  static inline std::atomic<bool> saves_{false}, training_{true};

  SavedAction saved_actions_[2] = {{SIGINT, {}}, {SIGTERM, {}}};
  struct sigaction pipe_action_ {};
};

}  // namespace llmc
