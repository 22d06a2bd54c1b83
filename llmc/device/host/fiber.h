// Fibers: control flows with their own stacks, registered with the sanitizers.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/stack_switch.h"

namespace llmc {

namespace host {

class Fiber {
 public:
  // The control flow that is already running. Its stack becomes known at the first switch away from
  // it.
  Fiber() = default;

  // A fiber that calls entry() at the first switch to it; entry never returns. `number` shifts the
  // frames within the stack. Stacks are page-aligned, so without the shift the frames of all
  // threads would compete for the same few cache sets.
  Fiber(void (*entry)(), std::size_t stack_bytes, int number);
  ~Fiber() {
    if (kThreadSanitizer && stack_.bottom() != nullptr) destroy_tsan_context();
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends `from`, the running fiber, and continues in `to`. Returns at the next switch to
  // `from`.
  [[gnu::no_sanitize_thread, gnu::noinline]] static void switch_to(Fiber& from, Fiber& to);

  // Sets the name that TSan's reports show next to the context's number.
  void set_name(const std::string& name) { tsan_set_name(tsan_context_, name.c_str()); }

  // For TSan: this fiber's accesses so far come before those of a context that acquires `token`.
  [[gnu::no_sanitize_thread, gnu::noinline]] void publish(void* token);

 private:
  [[gnu::no_sanitize_thread]] static Fiber*& previous();
  [[gnu::no_sanitize_thread]] static Fiber*& current();

  [[gnu::no_sanitize_thread]] static void enter();

  // Stores the bounds of the previous stack, which ASan reports. A stack not allocated here (an OS
  // thread's) thus becomes known before a fiber switches back to it.
  [[gnu::no_sanitize_thread, gnu::always_inline]] inline void finish_switch() {
    if (kAddressSanitizer)
      asan_finish_switch(fake_stack_, &previous()->bottom_, &previous()->bytes_);
  }

  // TSan does not allow destroying a context that ignores accesses. A fiber suspended inside the
  // executor ignores them.
  [[gnu::no_sanitize_thread, gnu::noinline]] void destroy_tsan_context();

  Stack stack_;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void (*entry_)() = nullptr;
  Context context_;
  void* fake_stack_ = nullptr;    // ASan's fake stack
  void* tsan_context_ = nullptr;  // TSan context
  int ignore_depth_ = 0;          // TsanIgnoreScope::depth() at the last switch away
};

// Fibers that run one CUDA thread after another, kept between launches. Creating a stack costs two
// system calls; creating a TSan context costs 0.5 ms and 0.8 MB.
class FiberPool {
 public:
  explicit FiberPool(void (*entry)()) : entry_(entry) {}

  // If a fiber runs a second thread, TSan orders the two. That is correct for threads of successive
  // launches of a stream, but within a launch it would hide races between blocks. A launch
  // therefore uses different fibers for threads fewer than about this many apart.
  static constexpr std::size_t kRaceWindow = 1024;

  void start_launch(int block_threads);

  Fiber* take();

  void recycle(Fiber* fiber) { idle_.push_back(fiber); }

  // Destroys all fibers after a fault, which leaves some suspended within a thread. Publishes their
  // accesses to `token` first (see Fiber::publish).
  void discard(void* token);

 private:
  Fiber* create();

  void (*entry_)();
  std::vector<std::unique_ptr<Fiber>> all_;
  std::deque<Fiber*> idle_;
  std::size_t num_unused_ = 0;  // idle fibers that this launch has not used yet
  std::size_t window_ = kRaceWindow;
};

// The pools of fibers of a stream's launches.
//
// A fiber has observed what its threads of earlier launches observed, which for TSan would order an
// overlapped launch with launches that it has not waited for. Therefore successive overlapped
// launches take turns with kOverlapped pools, and each is checked against so many launches before
// it.
class FiberPools {
 public:
  static constexpr std::size_t kOverlapped = 3;

  explicit FiberPools(void (*entry)());
  FiberPool& next(bool overlapped) {
    return overlapped ? overlapped_[++num_overlapped_ % kOverlapped] : ordinary_;
  }
  FiberPool& ordinary() { return ordinary_; }

 private:
  FiberPool ordinary_;
  std::deque<FiberPool> overlapped_;  // a deque: FiberPool is not copyable
  std::size_t num_overlapped_ = 0;
};

}  // namespace host

}  // namespace llmc
