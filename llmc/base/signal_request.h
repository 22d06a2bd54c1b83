// SIGINT and SIGTERM as a request to end the work in an orderly way. Programs call requested()
// between two parts of their work. Signals within two seconds of the first one count as the same
// request: `timeout`, Slurm and mpirun signal a process and its group. A later one ends the
// process.
#pragma once

#include <time.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace llmc {

// Functions that the signal handler calls; null: none. They may call only functions that POSIX
// lists as async-signal-safe.
struct SignalAnswers {
  void (*first)() = nullptr;           // after the first signal
  void (*last)(int signal) = nullptr;  // before a later signal ends the process
};

// While an object exists, the two signals are only recorded. A signal that was ignored (SIGINT of a
// shell's background job) stays ignored. SIGPIPE is ignored as well: a closed stdout is an error of
// the next write, and a closed stderr must not end a program that still has to save. A process may
// have only one object at a time.
class SignalRequest {
 public:
  static constexpr std::int64_t kSameRequestNanoseconds = 2'000'000'000;

  // Whether the actions of the signals before the object are restored even after a request. They
  // are not if the process ends then: a duplicate of the signal must not kill it.
  enum class AfterRequest { keep, restore };

  explicit SignalRequest(AfterRequest after_request = AfterRequest::keep,
                         SignalAnswers answers = {})
      : after_request_(after_request) {
    signal_.store(0);
    first_time_.store(0);
    first_answer_.store(answers.first);
    last_answer_.store(answers.last);
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
  SignalRequest(const SignalRequest&) = delete;
  SignalRequest& operator=(const SignalRequest&) = delete;
  ~SignalRequest() {
    if (requested() && after_request_ == AfterRequest::keep) return;
    ::sigaction(SIGPIPE, &pipe_action_, nullptr);
    for (const SavedAction& saved : saved_actions_) {
      if (!is_ignored(saved)) ::sigaction(saved.signal, &saved.action, nullptr);
    }
  }

  // Whether a signal has arrived.
  static bool requested() { return signal_.load() != 0; }

  // The first signal that arrived; 0: none.
  static int signal() { return signal_.load(); }
  // Another process of the run has received a signal: it counts as received here.
  static void adopt(int signal) {
    int none = 0;
    signal_.compare_exchange_strong(none, signal);
  }

 private:
  // The action of a signal before the object existed.
  struct SavedAction {
    int signal;
    struct sigaction action;
  };

  static bool is_ignored(const SavedAction& saved) { return saved.action.sa_handler == SIG_IGN; }

  // Signal handler. Several threads may run it at the same time.
  static void record(int signal) {
    const int saved_errno = errno;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t time = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    std::int64_t first = 0;
    if (first_time_.compare_exchange_strong(first, time)) {
      signal_.store(signal);
      if (const auto answer = first_answer_.load()) answer();
    } else if (time - first >= kSameRequestNanoseconds) {
      if (const auto answer = last_answer_.load()) answer(signal);
      end_process(signal);
    }
    errno = saved_errno;
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
                    std::atomic<void (*)()>::is_always_lock_free,
                "a handler must not wait for a lock");
  static inline std::atomic<int> signal_{0};               // the first one; 0: none
  static inline std::atomic<std::int64_t> first_time_{0};  // nanoseconds; 0: no signal yet
  static inline std::atomic<void (*)()> first_answer_{nullptr};
  static inline std::atomic<void (*)(int)> last_answer_{nullptr};

  AfterRequest after_request_;
  SavedAction saved_actions_[2] = {{SIGINT, {}}, {SIGTERM, {}}};
  struct sigaction pipe_action_ {};
};

}  // namespace llmc
