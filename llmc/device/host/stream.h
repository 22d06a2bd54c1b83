// Streams and events of the host. Work runs immediately and, without TSan, on the caller's stack;
// with LLMC_GUARD=1 it runs late (late_work.h).
// For TSan a stream is a separate context (StreamContext), ordered with others only by events and
// by host synchronisation. A missing event is thus detected although nothing ever runs
// concurrently.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "llmc/device/host/block.h"
#include "llmc/device/host/compiled_kernels.h"
#include "llmc/device/host/fiber.h"
#include "llmc/device/host/late_work.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/launch_observer.h"

namespace llmc {

class Event;
class Profiler;
class Stream;

namespace host {

// A TSan context with its own stack, for the work of a stream. It is ordered with its caller only
// by what the work itself acquires and releases. Its kernels run in its own block. They may reuse
// that block's fibers, because a stream executes its work in order.
class StreamContext {
 public:
  StreamContext();
  ~StreamContext();

  Block& block() { return *block_; }
  bool running() const { return running_; }

  // Runs work() in this context and rethrows its exception. If already in the context, only calls
  // work().
  template <class Work>
  void run(const Work& work) {
    if (running_) return work();
    TsanIgnoreScope bookkeeping;
    // A copy on the heap: the context must not access the caller's stack.
    const auto copy = std::make_unique<const Work>(work);
    call_ = [](const void* closure) { (*static_cast<const Work*>(closure))(); };
    closure_ = copy.get();
    running_ = true;
    current() = this;
    Fiber::switch_to(caller_, *fiber_);
    running_ = false;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr std::size_t kBytes = 1024 * 1024;  // also for host code: a GEMM, a thrown error

  static StreamContext*& current();
  // The context, read before anything orders it with the OS thread that runs it now.
  static StreamContext& current_unordered();
  static void serve();
  void call();

  Fiber caller_;
  std::unique_ptr<Fiber> fiber_;
  std::unique_ptr<Block> block_;
  void (*call_)(const void* closure) = nullptr;
  const void* closure_ = nullptr;
  bool running_ = false;
  std::exception_ptr error_;
};

// Contexts of destroyed streams, kept for new ones, of any thread: creating the fibers of a block
// takes a second with TSan. Only contexts the host has synchronised with are reused; otherwise the
// next stream would inherit happens-before edges and hide races.
class StreamContextPool {
 public:
  static std::unique_ptr<StreamContext> take();
  static void recycle(std::unique_ptr<StreamContext> context);

 private:
  ~StreamContextPool();
  static StreamContextPool& instance();

  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamContext>> idle_;
};

// Work that a stream has recorded instead of running it. Each part runs itself on a stream.
using Recording = std::vector<std::function<void(Stream&)>>;

}  // namespace host

// Not thread-safe: only one host thread may use a stream at a time.
class Stream {
 public:
  Stream();
  // A stream whose work always runs immediately.
  struct Immediate {};
  explicit Stream(Immediate) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Runs every copy, fill, GEMM and host function of this stream. `work` holds what it needs by
  // value.
  template <class Work>
  void run(const Work& work) {
    if (defers()) {
      defer([work](Stream& stream) { stream.run(work); });
    } else {
      execute(work, Kind::other);
    }
  }

  // Runs a launch: work(block), where `block` runs the kernel with TSan and is null otherwise.
  template <class Work>
  void run_launch(const Work& work, bool overlapped) {
    if (defers()) {
      defer([=](Stream& stream) { stream.run_launch(work, overlapped); });
    } else {
      execute([block = block(), work] { work(block); },
              overlapped ? Kind::overlapped_launch : Kind::launch);
    }
  }

  // Later work is appended to `recording` and does not run; null ends that (graph.h).
  void record(host::Recording* recording) { recording_ = recording; }
  bool is_recording() const { return recording_ != nullptr; }
  // Whether the work waits until the host waits for it (LLMC_GUARD=1).
  bool is_late() const { return late_work_ != nullptr; }

  void synchronize();
  // If work runs when it is submitted, this orders the host after it, like synchronize().
  bool idle();
  void wait(const Event& event);
  // Throws an Error that begins with `what` if a graph records the stream.
  void require_not_recording(const char* what) const;

  // Calls `observer` before each later launch on this stream; null disables it.
  void observe(LaunchObserver* observer) { observer_ = observer; }
  LaunchObserver* observer() const { return observer_; }

  Profiler* profiler() const { return profiler_; }
  void profile(Profiler* profiler) { profiler_ = profiler; }

  // TSan token that the work of all streams releases. Freeing memory acquires it, as cudaFree waits
  // for the device.
  static void* device_token();

 private:
  friend class Event;
  enum class Kind { overlapped_launch, launch, other };

  // Whether submitted work does not run now: it is recorded, or it waits in late_work_.
  bool defers() const { return recording_ != nullptr || late_work_ != nullptr; }
  void defer(std::function<void(Stream&)> part);

  // Marks work as finished, also if it throws.
  struct Finish {
    void* finished;
    host::Block& block;
    ~Finish();
  };

  // For TSan, work is ordered with the launches before it, except an overlapped launch. Work that
  // contains a launch is also ordered with it.
  template <class Work>
  void execute(const Work& work, [[maybe_unused]] Kind kind) {
    if constexpr (!host::kThreadSanitizer) {
      if constexpr (kGpuKernels) {
        if (kind == Kind::other) host::note_end_of_launches(this);
      }
      work();
    } else {
      host::tsan_release(&submitted_);
      host::TsanIgnoreScope bookkeeping;
      idle_ = false;
      const bool is_nested = context_->running();
      try {
        // The context must not read this object, which the host may destroy without waiting.
        context_->run([=, block = block(), submitted = &submitted_, finished = &finished_] {
          host::tsan_acquire(submitted);
          if (kind != Kind::overlapped_launch) block->settle();
          const Finish finish{finished, *block};
          work();
          if (is_nested) block->settle();
        });
      } catch (...) {
        host::tsan_acquire(&finished_);  // the context created the exception that is read here
        throw;
      }
    }
  }

  // The block that runs this stream's kernels with TSan; null in other builds.
  host::Block* block() { return host::kThreadSanitizer ? &context_->block() : nullptr; }

  std::unique_ptr<host::StreamContext> context_;
  LaunchObserver* observer_ = nullptr;
  Profiler* profiler_ = nullptr;
  host::Recording* recording_ = nullptr;
  std::shared_ptr<host::LateWork> late_work_;
  bool idle_ = true;  // the host has waited for all work so far
  char submitted_ = 0, finished_ = 0;
};

inline void* native_stream(Stream& stream) {
  return &stream;
}

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  void synchronize();

  // Work runs when it is submitted.
  bool has_passed(int) const { return true; }

 private:
  friend class Stream;
  friend double milliseconds_between(const Event& first, const Event& second);
  std::chrono::steady_clock::time_point time() const;

  mutable char token_ = 0;
  std::chrono::steady_clock::time_point time_;
  std::shared_ptr<host::LatePoint> late_point_;
};

// Runs work() on the host when the stream reaches this point. Later work of the stream sees its
// results.
template <class Work>
void run_on_host(Stream& stream, const Work& work) {
  stream.require_not_recording("a host function cannot run in a stream");
  if (stream.is_late()) {
    stream.synchronize();  // as on a GPU
    work();
  } else {
    stream.run(work);
  }
}

// Milliseconds between two events. Both must be recorded and, on a GPU, reached.
inline double milliseconds_between(const Event& first, const Event& second) {
  return std::chrono::duration<double, std::milli>(second.time() - first.time()).count();
}

}  // namespace llmc
