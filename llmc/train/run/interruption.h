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
    received_.store(0);
    struct sigaction noting {};
    noting.sa_handler = note;
    noting.sa_flags = SA_RESTART;
    sigemptyset(&noting.sa_mask);
    for (Handled& handled : handled_) {
      ::sigaction(handled.signal, nullptr, &handled.before);
      if (!ignored(handled)) ::sigaction(handled.signal, &noting, nullptr);
    }
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption() {
    for (const Handled& handled : handled_) {
      if (!ignored(handled)) ::sigaction(handled.signal, &handled.before, nullptr);
    }
    received_.store(0);
  }

  // Whether a signal has arrived. Always false if no `Interruption` exists.
  static bool requested() { return received_.load() != 0; }

  // "SIGINT" or "SIGTERM", the signal that arrived.
  static const char* name() { return received_.load() == SIGINT ? "SIGINT" : "SIGTERM"; }

 private:
  struct Handled {
    int signal;
    struct sigaction before;
  };

  static bool ignored(const Handled& handled) { return handled.before.sa_handler == SIG_IGN; }

  // Signal handler: calls only functions that POSIX lists as async-signal-safe. It restores the
  // default actions, so the second signal ends the process.
  static void note(int signal) {
    received_.store(signal);
    struct sigaction ending {};
    ending.sa_handler = SIG_DFL;
    for (const int each : {SIGINT, SIGTERM}) {
      struct sigaction now {};
      ::sigaction(each, nullptr, &now);
      if (now.sa_handler == note) ::sigaction(each, &ending, nullptr);
    }
  }

  static_assert(std::atomic<int>::is_always_lock_free, "a handler must not wait for a lock");
  static inline std::atomic<int> received_{0};  // the last signal; 0: none

  Handled handled_[2] = {{SIGINT, {}}, {SIGTERM, {}}};
};

}  // namespace llmc
