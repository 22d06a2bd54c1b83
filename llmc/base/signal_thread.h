// Receives signals in a thread that computes nothing. All other threads block every asynchronous
// signal, so no signal handler ever runs on the stack of a thread that computes.
//
// oneDNN's generated matrix products need this: until March 2026 (its issue 4845) they use the
// stack pointer as a pointer to data. A handler that interrupts such a product would overwrite the
// heap or a matrix with its stack frame, whatever the handler does.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>

#include "llmc/base/error.h"

namespace llmc {

// The signals that ask a program to end.
inline constexpr int kStopSignals[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

inline std::string_view signal_name(int signal) {
  switch (signal) {
    case SIGHUP:
      return "SIGHUP";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "a signal";
  }
}

// All signals except those that an instruction or a system call of the receiving thread causes. A
// thread that blocks one of these is killed by it, or never notices it.
inline sigset_t asynchronous_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPIPE}) {
    sigdelset(&set, signal);
  }
  return set;
}

// Unblocks a signal in the calling thread while the object exists.
class UnblockedSignal {
 public:
  explicit UnblockedSignal(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, &mask_);
  }
  UnblockedSignal(const UnblockedSignal&) = delete;
  UnblockedSignal& operator=(const UnblockedSignal&) = delete;
  ~UnblockedSignal() { pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }

 private:
  sigset_t mask_;
};

class SignalThread {
 public:
  // Blocks the asynchronous signals in the calling thread, and in all threads that it creates. Then
  // starts a thread that calls receive(signal) for each stop signal, one after the other; all other
  // signals have their usual effect in that thread. A stop signal that is ignored now, as `nohup`
  // and background jobs of scripts arrange, stays ignored. Call this once, as the first statement
  // of main: before MPI, CUDA and any thread.
  static void start(void (*receive)(int signal)) {
    receive_ = receive;
    const sigset_t blocked = asynchronous_signals();
    pthread_sigmask(SIG_SETMASK, &blocked, &original_mask_);
    sigemptyset(&awaited_);
    for (const int signal : kStopSignals) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&awaited_, signal);
    }
    start_thread();
    pthread_atfork(nullptr, nullptr, restore_signals);
  }

  // Ends the process by the default action of `signal`. For receive().
  [[noreturn]] static void end_process(int signal) {
    set_action(signal, SIG_DFL);
    const UnblockedSignal unblocked(signal);
    ::raise(signal);
    ::_exit(128 + signal);  // the first process of a container ignores default actions
  }

  // While an object exists there is no signal thread, and the calling thread has the actions and
  // the mask of signals with which the program started. For exec, whose program inherits them. A
  // stop signal that arrives then has its default action.
  class Pause {
   public:
    Pause() {
      if (!is_running_) return;
      for_each_awaited(SIG_DFL);  // before the thread ends: no handler may use it afterwards
      is_stopping_.store(true);
      ::pthread_kill(thread_, kWake);
      ::pthread_join(thread_, nullptr);
      restore_signals();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() {
      if (!is_running_) return;
      const sigset_t blocked = asynchronous_signals();
      pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
      is_stopping_.store(false);
      start_thread();
    }
  };

 private:
  static constexpr int kWake = SIGURG;  // ignored by default, so its loss has no effect

  static void set_action(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }

  static void for_each_awaited(void (*handler)(int)) {
    for (const int signal : kStopSignals) {
      if (sigismember(&awaited_, signal) == 1) set_action(signal, handler);
    }
  }

  static void start_thread() {
    const int error = ::pthread_create(&thread_, nullptr, receive_signals, nullptr);
    require(error == 0, "cannot start a thread",
            "raise the limit of processes and threads (ulimit -u)");
    is_running_ = true;
    for_each_awaited(forward);
  }

  static void* receive_signals(void*) {
    sigset_t awaited = awaited_;
    sigaddset(&awaited, kWake);
    pthread_sigmask(SIG_SETMASK, &awaited, nullptr);
    for (;;) {
      const int signal = ::sigwaitinfo(&awaited, nullptr);
      if (signal == kWake && is_stopping_.load()) return nullptr;
      // Negative: a library's handler has run in this thread.
      if (signal > 0 && signal != kWake) receive_(signal);
    }
  }

  // Handler of the stop signals. It runs only in a thread that blocks nothing, because a library
  // created it before main, as OpenBLAS does.
  static void forward(int signal) { ::pthread_kill(thread_, signal); }

  static void restore_signals() {
    for_each_awaited(SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &original_mask_, nullptr);
  }

  static inline void (*receive_)(int) = nullptr;
  static inline sigset_t original_mask_, awaited_;
  static inline pthread_t thread_;
  static inline bool is_running_ = false;
  static inline std::atomic<bool> is_stopping_{false};
};

}  // namespace llmc
