#include "llmc/base/signal_thread.h"

#include <unistd.h>

#include "llmc/base/error.h"

namespace llmc {

std::string_view signal_name(int signal) {
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

namespace {

// All signals except those that an instruction or a system call of the receiving thread causes. A
// thread that blocks one of these is killed by it, or never notices it.
sigset_t asynchronous_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPIPE}) {
    sigdelset(&set, signal);
  }
  return set;
}

}  // namespace

UnblockedSignal::UnblockedSignal(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, &mask_);
}

void SignalThread::start(void (*receive)(int signal)) {
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

void SignalThread::end_process(int signal) {
  set_action(signal, SIG_DFL);
  const UnblockedSignal unblocked(signal);
  ::raise(signal);
  ::_exit(128 + signal);  // the first process of a container ignores default actions
}

SignalThread::Pause::Pause() {
  if (!is_running_) return;
  for_each_awaited(SIG_DFL);  // before the thread ends: no handler may use it afterwards
  is_stopping_.store(true);
  ::pthread_kill(thread_, kWake);
  ::pthread_join(thread_, nullptr);
  restore_signals();
}

SignalThread::Pause::~Pause() {
  if (!is_running_) return;
  const sigset_t blocked = asynchronous_signals();
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  is_stopping_.store(false);
  start_thread();
}

void SignalThread::set_action(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

void SignalThread::for_each_awaited(void (*handler)(int)) {
  for (const int signal : kStopSignals) {
    if (sigismember(&awaited_, signal) == 1) set_action(signal, handler);
  }
}

void SignalThread::start_thread() {
  const int error = ::pthread_create(&thread_, nullptr, receive_signals, nullptr);
  require(error == 0, "cannot start a thread",
          "raise the limit of processes and threads (ulimit -u)");
  is_running_ = true;
  for_each_awaited(forward);
}

void* SignalThread::receive_signals(void*) {
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

void SignalThread::restore_signals() {
  for_each_awaited(SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &original_mask_, nullptr);
}

}  // namespace llmc
