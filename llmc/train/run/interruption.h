// SIGINT and SIGTERM as a request to end soon and in order: whoever holds an `Interruption` looks
// at it between steps. The second signal, of either kind, ends the process at once.
#pragma once

#include <atomic>
#include <csignal>

namespace llmc {

// While one lives the two signals are only noted; then what they did before is back. A signal that
// was ignored (SIGINT of a shell's background job) stays so. One at a time in a process.
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

  // Whether a signal has come. Always false where no `Interruption` lives.
  static bool requested() { return received_.load() != 0; }

  // "SIGINT" or "SIGTERM", whichever came.
  static const char* name() { return received_.load() == SIGINT ? "SIGINT" : "SIGTERM"; }

 private:
  struct Handled {
    int signal;
    struct sigaction before;
  };

  static bool ignored(const Handled& handled) { return handled.before.sa_handler == SIG_IGN; }

  // Runs inside a signal handler: only what POSIX calls async-signal-safe.
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
  static inline std::atomic<int> received_{0};  // the signal; 0: none

  Handled handled_[2] = {{SIGINT, {}}, {SIGTERM, {}}};
};

}  // namespace llmc
