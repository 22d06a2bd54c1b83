// Streams and events of the host: work runs at once, on the caller's stack. For the race checker a
// stream is a thread of its own, ordered with others only by events and by host synchronisation, so
// that a missing event is found although nothing ever runs at the same time.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "llmc/device/host/block.h"
#include "llmc/device/host/fiber.h"
#include "llmc/device/host/worker_pool.h"
#include "llmc/device/launch_observer.h"

namespace llmc {

class Event;
class Profiler;

namespace host {

// A context of the race checker's, with a stack of its own, for the work of a stream: ordered with
// its caller only by what the work itself acquires and releases. Its kernels run in its own block,
// whose fibers they may use again, since what a stream does is in order.
class SideContext {
 public:
  SideContext() {
    // The first to ask for the pool makes it, and whoever asks later comes, for the checker, after
    // that: better the host than some stream.
    WorkerPool::instance();
    Unobserved bookkeeping;
    fiber_ = std::make_unique<Fiber>(&SideContext::serve, kBytes, 0);
    fiber_->set_name("a stream");
    block_ = std::make_unique<Block>();
  }
  ~SideContext() {
    Unobserved bookkeeping;
    fiber_.reset();
    block_.reset();
  }

  Block& block() { return *block_; }

  // Returns when work() has; throws what it threw. From inside the context it is a plain call.
  template <class Work>
  void run(const Work& work) {
    if (running_) return work();
    Unobserved bookkeeping;
    // In memory of its own: the caller's stack is the caller's.
    const auto copy = std::make_unique<const Work>(work);
    call_ = [](const void* closure) { (*static_cast<const Work*>(closure))(); };
    closure_ = copy.get();
    running_ = true;
    serving() = this;
    Fiber::switch_to(caller_, *fiber_);
    running_ = false;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr std::size_t kBytes = 1024 * 1024;  // host code runs here: a GEMM, a thrown error

  static SideContext*& serving() {
    static thread_local SideContext* context = nullptr;
    return context;
  }
  static void serve() {
    SideContext& self = *serving();
    for (;;) {
      self.call();
      Unobserved bookkeeping;
      Fiber::switch_to(*self.fiber_, self.caller_);
    }
  }
  void call() {
    try {
      call_(closure_);
    } catch (...) {
      Unobserved bookkeeping;
      error_ = std::current_exception();
    }
  }

  Fiber caller_;
  std::unique_ptr<Fiber> fiber_;
  std::unique_ptr<Block> block_;
  void (*call_)(const void* closure) = nullptr;
  const void* closure_ = nullptr;
  bool running_ = false;
  std::exception_ptr error_;
};

// Contexts of streams that are no more, for streams to come: making the fibers of a block costs the
// race checker a second. Only of streams whose last work the host had waited for, or their heirs
// would know what nobody told them.
class SideContexts {
 public:
  static std::unique_ptr<SideContext> take() {
    Unobserved bookkeeping;
    if (spare().empty()) return std::make_unique<SideContext>();
    std::unique_ptr<SideContext> context = std::move(spare().back());
    spare().pop_back();
    return context;
  }
  static void give_back(std::unique_ptr<SideContext> context) {
    Unobserved bookkeeping;
    spare().push_back(std::move(context));
  }

 private:
  ~SideContexts() {
    Unobserved bookkeeping;
    spare_.clear();
  }
  static std::vector<std::unique_ptr<SideContext>>& spare() {
    static thread_local SideContexts contexts;
    return contexts.spare_;
  }

  std::vector<std::unique_ptr<SideContext>> spare_;
};

}  // namespace host

// For one host thread at a time.
class Stream {
 public:
  Stream() {
    if (host::kThreadSanitizer) context_ = host::SideContexts::take();
  }
  ~Stream() {
    host::Unobserved bookkeeping;
    if (host::kThreadSanitizer && idle_) host::SideContexts::give_back(std::move(context_));
    context_.reset();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Every copy, fill, launch and GEMM comes through here. `work` owns what it needs by value.
  template <class Work>
  void run(const Work& work) {
    if constexpr (!host::kThreadSanitizer) {
      work();
    } else {
      host::tsan_release(&submitted_);
      host::Unobserved bookkeeping;
      idle_ = false;
      try {
        context_->run([this, work] {
          host::tsan_acquire(&submitted_);
          const Finish finish{*this};
          work();
        });
      } catch (...) {
        host::tsan_acquire(&finished_);  // the error was made there and is read here
        throw;
      }
    }
  }

  void synchronize() {
    host::tsan_acquire(&finished_);
    idle_ = true;
  }
  void wait(const Event& event);

  // Told of each launch on this stream from now on, before it starts; null: nobody.
  void observe(LaunchObserver* observer) { observer_ = observer; }
  LaunchObserver* observer() const { return observer_; }

  Profiler* profiler() const { return profiler_; }
  void profile(Profiler* profiler) { profiler_ = profiler; }

  // Where kernels run for the race checker; null otherwise.
  host::Block* block() { return host::kThreadSanitizer ? &context_->block() : nullptr; }

  // All streams' work: what freeing memory waits for, as cudaFree does.
  static void* device_token() {
    static char token;
    return &token;
  }

 private:
  // Work that throws is over, too.
  struct Finish {
    Stream& stream;
    ~Finish() {
      host::tsan_release(&stream.finished_);
      host::tsan_release(device_token());
    }
  };

  std::unique_ptr<host::SideContext> context_;
  LaunchObserver* observer_ = nullptr;
  Profiler* profiler_ = nullptr;
  bool idle_ = true;  // the host has waited for all work so far
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
      host::Unobserved bookkeeping;
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
