#include "llmc/base/signal_request.h"

#include <csignal>
#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/signal_thread.h"
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

void SignalRequest::set_explained(std::function<bool()> is_explained, KnownError error) {
  const std::lock_guard lock(state().mutex);
  state().is_explained = std::move(is_explained);
  state().error = std::move(error);
}

std::optional<ReportedError> SignalRequest::reported_error() {
  std::unique_lock lock(state().mutex);
  const auto is_explained = state().is_explained;
  const KnownError error = state().error;
  lock.unlock();
  return error && is_explained() ? error() : std::nullopt;
}

void SignalRequest::set_end(EndAnswer end) {
  const std::lock_guard lock(state().mutex);
  state().end = std::move(end);
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
  if (!state().is_recording) end(signal);
  if (!state().first_time) {
    adopt(signal);
    if (state().is_explained()) {
      answer_end(signal);
    } else if (state().answers.first) {
      state().answers.first();
    }
    state().first_time = Clock::now();
  } else if (Clock::now() - *state().first_time >= kSameRequest) {
    answer_end(signal);
    UnfinishedFiles::remove_all();
    if (state().answers.last) state().answers.last(signal);
    SignalThread::end_process(signal);
  }
}

void SignalRequest::answer_end(int signal) {
  if (!state().end) return;
  const auto done = std::make_shared<std::promise<void>>();
  const auto answer = [done, signal, end = state().end, error = state().error,
                       is_explained = state().is_explained] {
    end(signal, error && is_explained() ? error() : std::nullopt);
    done->set_value();
  };
  try {
    std::thread(answer).detach();
    done->get_future().wait_for(kEndTime);
  } catch (const std::system_error&) {  // no thread is left: the process ends without the answer
  }
}

void SignalRequest::end(int signal) {
  answer_end(signal);
  UnfinishedFiles::remove_all();
  const std::string& work = state().work;
  if (!state().is_explained())
    Notice::interject(state().program + ": interrupted by " + std::string(signal_name(signal)) +
                      (work.empty() ? "" : " " + work));
  SignalThread::end_process(signal);
}

}  // namespace llmc
