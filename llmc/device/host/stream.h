// Streams and events of the host: work runs at once, on the caller's stack. For the race checker a
// stream is a thread of its own, ordered with others only by events and by host synchronisation, so
// that a missing event is found although nothing ever runs at the same time.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/stack_switch.h"

namespace llmc {

class Event;

namespace host {

// A context of the race checker's with a stack of its own, for work that is ordered with its caller
// only by what the work itself acquires and releases.
class SideContext {
 public:
  SideContext() {
    Unobserved bookkeeping;
    stack_ = static_cast<char*>(std::malloc(kStackBytes));
    checker_ = tsan_create();
    own_.start(stack_, &SideContext::entry);
  }
  ~SideContext() {
    Unobserved bookkeeping;
    tsan_destroy(checker_);
    std::free(stack_);
  }
  SideContext(const SideContext&) = delete;
  SideContext& operator=(const SideContext&) = delete;

  // Returns when work() has; throws what it threw.
  void run(std::function<void()> work) {
    Unobserved bookkeeping;
    work_ = std::make_unique<std::function<void()>>(std::move(work));
    error_ = nullptr;
    starting() = this;
    enter();
    work_.reset();
    const std::exception_ptr error = std::exchange(error_, nullptr);
    if (error) std::rethrow_exception(error);
  }

 private:
  static SideContext*& starting() {
    static thread_local SideContext* context = nullptr;
    return context;
  }
  static void entry() {
    SideContext& self = *starting();
    for (;;) {
      self.call();
      self.leave();
    }
  }
  [[gnu::noinline]] void call() {
    try {
      (*work_)();
    } catch (...) {
      Unobserved bookkeeping;
      error_ = std::current_exception();
    }
  }
  [[gnu::no_sanitize_thread, gnu::noinline]] void enter() {
    caller_checker_ = tsan_current();
    tsan_switch(checker_);
    Context::switch_stacks(caller_, own_);
  }
  [[gnu::no_sanitize_thread, gnu::noinline]] void leave() {
    tsan_switch(caller_checker_);
    Context::switch_stacks(own_, caller_);
  }

  char* stack_ = nullptr;
  Context own_, caller_;
  void* checker_ = nullptr;
  void* caller_checker_ = nullptr;
  std::unique_ptr<std::function<void()>> work_;
  std::exception_ptr error_;
};

}  // namespace host

class Stream {
 public:
  Stream() {
    if (host::kThreadSanitizer) context_ = std::make_unique<host::SideContext>();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Every copy, fill, launch and GEMM comes through here. `work` owns what it needs by value.
  template <class Work>
  void run(Work&& work) {
    if constexpr (!host::kThreadSanitizer) {
      work();
    } else {
      host::Unobserved bookkeeping;
      host::tsan_release(&submitted_);
      context_->run([this, work = std::forward<Work>(work)] {
        host::tsan_acquire(&submitted_);
        work();
        host::tsan_release(&finished_);
        host::tsan_release(device_token());
      });
    }
  }

  void synchronize() { host::tsan_acquire(&finished_); }
  void wait(const Event& event);

  // All streams' work: what freeing memory waits for, as cudaFree does.
  static void* device_token() {
    static char token;
    return &token;
  }

 private:
  std::unique_ptr<host::SideContext> context_;
  char submitted_ = 0, finished_ = 0;
};

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream) {
    stream.run([this] {
      host::tsan_release(&token_);
      time_ = std::chrono::steady_clock::now();
    });
  }
  void synchronize() { host::tsan_acquire(&token_); }

 private:
  friend class Stream;
  friend double milliseconds_between(const Event& first, const Event& second);
  mutable char token_ = 0;
  std::chrono::steady_clock::time_point time_;
};

inline void Stream::wait(const Event& event) {
  run([&event] { host::tsan_acquire(&event.token_); });
}

// Both events must be recorded and, on a GPU, reached.
inline double milliseconds_between(const Event& first, const Event& second) {
  return std::chrono::duration<double, std::milli>(second.time_ - first.time_).count();
}

}  // namespace llmc
