// Treats SIGINT and SIGTERM as a request to finish the current step and end. A run calls
// Interruption::requested() between steps and in evaluations. The second signal, of either kind,
// ends the process at once.
#pragma once

#include <atomic>
#include <csignal>

namespace llmc {

// While an object exists, the two signals are only recorded; the destructor restores their previous
// actions. A signal that was ignored (SIGINT of a shell's background job) stays ignored. A process
// may have only one object at a time.
class Interruption {
 public:
  Interruption() {
    last_signal_.store(0);
    struct sigaction record_action {};
    record_action.sa_handler = record;
    record_action.sa_flags = SA_RESTART;
    sigemptyset(&record_action.sa_mask);
    for (SavedAction& saved : saved_actions_) {
      ::sigaction(saved.signal, nullptr, &saved.action);
      if (!is_ignored(saved)) ::sigaction(saved.signal, &record_action, nullptr);
    }
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption() {
    for (const SavedAction& saved : saved_actions_) {
      if (!is_ignored(saved)) ::sigaction(saved.signal, &saved.action, nullptr);
    }
    last_signal_.store(0);
  }

  // Whether a signal has arrived. Always false if no `Interruption` exists.
  static bool requested() { return last_signal_.load() != 0; }

  // "SIGINT" or "SIGTERM", the signal that arrived.
  static const char* name() { return last_signal_.load() == SIGINT ? "SIGINT" : "SIGTERM"; }

 private:
  // The action of a signal before the object existed.
  struct SavedAction {
    int signal;
    struct sigaction action;
  };

  static bool is_ignored(const SavedAction& saved) { return saved.action.sa_handler == SIG_IGN; }

  // Signal handler: calls only functions that POSIX lists as async-signal-safe. It restores the
  // default actions, so the second signal ends the process.
  static void record(int signal) {
    last_signal_.store(signal);
    struct sigaction default_action {};
    default_action.sa_handler = SIG_DFL;
    for (const int handled_signal : {SIGINT, SIGTERM}) {
      struct sigaction current {};
      ::sigaction(handled_signal, nullptr, &current);
      if (current.sa_handler == record) ::sigaction(handled_signal, &default_action, nullptr);
    }
  }

  static_assert(std::atomic<int>::is_always_lock_free, "a handler must not wait for a lock");
  static inline std::atomic<int> last_signal_{0};  // 0: none

  SavedAction saved_actions_[2] = {{SIGINT, {}}, {SIGTERM, {}}};
};

}  // namespace llmc
