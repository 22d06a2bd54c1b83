#include "llmc/control/main_backtrace.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

namespace llmc {

namespace {

constexpr int kMaxCalls = 64;

// A signal handler reaches nothing else.
struct Capture {
  std::array<void*, kMaxCalls> calls{};
  std::atomic<int> num_calls{-1};  // -1: not captured
  std::atomic<bool> is_installed{false};
  pthread_t main{};
  std::mutex mutex;  // of readers
};

Capture& capture() {
  static Capture& capture = *new Capture;
  return capture;
}

// Not one of the signals that threads block (base/signal_thread.h).
constexpr int kSignal = SIGSYS;

void handle(int, siginfo_t* info, void*) {
  if (info->si_code != SI_TKILL || info->si_pid != ::getpid()) {
    ::signal(kSignal, SIG_DFL);  // a forbidden system call, or another program
    ::raise(kSignal);
    return;
  }
  const int saved = errno;
  capture().num_calls.store(::backtrace(capture().calls.data(), kMaxCalls));
  errno = saved;
}

}  // namespace

void MainBacktrace::install() {
  Capture& state = capture();
  state.main = ::pthread_self();
  ::backtrace(state.calls.data(), kMaxCalls);  // loads a library, which a handler must not
  constexpr std::size_t kStackBytes = 1 << 17;
  static char* const stack = new char[kStackBytes];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = kStackBytes;
  if (::sigaltstack(&alternative, nullptr) != 0) return;
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigfillset(&action.sa_mask);
  ::sigaction(kSignal, &action, nullptr);
  state.is_installed.store(true);
}

std::vector<std::string> MainBacktrace::lines() {
  Capture& state = capture();
  const std::lock_guard lock(state.mutex);
  if (!state.is_installed.load()) return {};
  state.num_calls.store(-1);
  if (::pthread_kill(state.main, kSignal) != 0) return {};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (state.num_calls.load() < 0) {
    if (std::chrono::steady_clock::now() > end) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int num_calls = state.num_calls.load();
  const std::unique_ptr<char*, decltype(&std::free)> texts(
      ::backtrace_symbols(state.calls.data(), num_calls), &std::free);
  constexpr int kOwn = 2;  // of the handler
  std::vector<std::string> lines;
  for (int i = kOwn; texts && i < num_calls; ++i) lines.emplace_back(texts.get()[i]);
  return lines;
}

}  // namespace llmc
