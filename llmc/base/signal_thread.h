// Receives signals in a thread that computes nothing. All other threads block every asynchronous
// signal, so no signal handler ever runs on the stack of a thread that computes.
//
// oneDNN's generated matrix products need this: until March 2026 (its issue 4845) they use the
// stack pointer as a pointer to data. A handler that interrupts such a product would overwrite the
// heap or a matrix with its stack frame, whatever the handler does.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace llmc {

// The signals that ask a program to end.
inline constexpr int kStopSignals[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

std::string_view signal_name(int signal);

// Unblocks a signal in the calling thread while the object exists.
class UnblockedSignal {
 public:
  explicit UnblockedSignal(int signal);
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
  static void start(void (*receive)(int signal));

  // Ends the process by the default action of `signal`. For receive().
  [[noreturn]] static void end_process(int signal);

  // While an object exists there is no signal thread, and the calling thread has the actions and
  // the mask of signals with which the program started. For exec, whose program inherits them. A
  // stop signal that arrives then has its default action.
  class Pause {
   public:
    Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause();
  };

 private:
  static constexpr int kWake = SIGURG;  // ignored by default, so its loss has no effect

  static void set_action(int signal, void (*handler)(int));

  static void for_each_awaited(void (*handler)(int));

  static void start_thread();

  static void* receive_signals(void*);

  // Handler of the stop signals. It runs only in a thread that blocks nothing, because a library
  // created it before main, as OpenBLAS does.
  static void forward(int signal) { ::pthread_kill(thread_, signal); }

  static void restore_signals();

  static inline void (*receive_)(int) = nullptr;
  static inline sigset_t original_mask_, awaited_;
  static inline pthread_t thread_;
  static inline bool is_running_ = false;
  static inline std::atomic<bool> is_stopping_{false};
};

}  // namespace llmc
