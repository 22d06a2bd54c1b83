#include "llmc/base/signal_request.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/signal_thread.h"
#include "llmc/base/threads.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

IgnoredPipeSignal::IgnoredPipeSignal() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigemptyset(&ignore.sa_mask);
  ::sigaction(SIGPIPE, &ignore, &action_);
}

IgnoredPipeSignal::~IgnoredPipeSignal() {
  if (!is_kept_) ::sigaction(SIGPIPE, &action_, nullptr);
}

SignalRequest::SignalRequest(AfterRequest after_request, SignalAnswers answers)
    : after_request_(after_request) {
  const std::lock_guard lock(state().mutex);
  signal_.store(0);
  state().first_time.reset();
  state().answers = std::move(answers);
  state().is_recording = true;
}

SignalRequest::~SignalRequest() {
  const std::lock_guard lock(state().mutex);
  state().answers = {};
  if (after_request_ == AfterRequest::restore) {
    state().is_recording = false;
  } else if (requested()) {
    pipe_.keep();
  }
}

void SignalRequest::adopt(int signal) {
  int none = 0;
  signal_.compare_exchange_strong(none, signal);
}

void SignalRequest::start_thread(const std::string& program) {
  state().program = program;
  try {
    SignalThread::start(receive);
  } catch (const Error& error) {
    Notice::error(program + ": " + error.what());
    std::exit(1);
  }
}

void SignalRequest::set_work(const std::string& work) {
  const std::lock_guard lock(state().mutex);
  state().work = work;
}

void SignalRequest::set_explained(std::function<bool()> is_explained) {
  const std::lock_guard lock(state().mutex);
  state().is_explained = std::move(is_explained);
}

void SignalRequest::set_end(std::function<void(int signal)> end) {
  const std::lock_guard lock(state().mutex);
  state().end = std::move(end);
}

void SignalRequest::set_confirm(std::function<bool(int signal)> confirm) {
  const std::lock_guard lock(state().mutex);
  state().confirm = std::move(confirm);
}

void SignalRequest::set_leave(std::function<void(int signal)> leave) {
  const std::lock_guard lock(state().mutex);
  state().leave = std::move(leave);
}

void SignalRequest::set_report(std::function<void()> report) {
  const std::lock_guard lock(state().mutex);
  state().report = std::move(report);
}

void SignalRequest::end_process(int signal) {
  const std::lock_guard lock(state().mutex);
  end(signal);
}

SignalRequest::State& SignalRequest::state() {
  static State& state = *new State;
  return state;
}

void SignalRequest::receive(int signal) {
  const std::lock_guard lock(state().mutex);
  if (signal == SIGUSR2 && state().report) return state().report();
  if (!state().is_recording) end(signal);
  if (!state().first_time) {
    if (!state().is_explained() && !state().confirm(signal)) return;
    adopt(signal);
    if (state().answers.first && !state().is_explained()) state().answers.first();
    state().first_time = Clock::now();
  } else if (Clock::now() - *state().first_time >= kSameRequest) {
    answer_end(signal);
    UnfinishedFiles::remove_all();
    if (state().answers.last) state().answers.last(signal);
    if (state().leave) state().leave(signal);
    SignalThread::end_process(signal);
  }
}

void SignalRequest::answer_end(int signal) {
  if (!state().end || state().is_explained()) return;
  run_for(std::chrono::seconds(2), [end = state().end, signal] { end(signal); });
}

void SignalRequest::end(int signal) {
  answer_end(signal);
  UnfinishedFiles::remove_all();
  const std::string& work = state().work;
  if (!state().is_explained())
    Notice::interject(state().program + ": interrupted by " + std::string(signal_name(signal)) +
                      (work.empty() ? "" : " " + work));
  if (state().leave) state().leave(signal);
  SignalThread::end_process(signal);
}

}  // namespace llmc
