// Fibers: control flows with their own stacks, registered with the sanitizers.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/stack_switch.h"

namespace llmc::host {

class Fiber {
 public:
  // The control flow that is already running. Its stack becomes known at the first switch away from
  // it.
  Fiber() = default;

  // A fiber that calls entry() at the first switch to it; entry never returns. `number` shifts the
  // frames within the stack. Stacks are page-aligned, so without the shift the frames of all
  // threads would compete for the same few cache sets.
  Fiber(void (*entry)(), std::size_t stack_bytes, int number)
      : stack_(stack_bytes),
        bottom_(stack_.bottom()),
        bytes_(stack_bytes),
        entry_(entry),
        checker_(tsan_create()) {
    constexpr int kShifts = 32, kShiftBytes = 128;
    const std::size_t shift = static_cast<std::size_t>(number % kShifts) * kShiftBytes;
    context_.start(stack_.bottom() + stack_bytes - shift, stack_bytes - shift,
                   &Fiber::first_arrival);
  }
  ~Fiber() {
    if (kThreadSanitizer && stack_.bottom() != nullptr) end_checker();
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Suspends `from`, the running fiber, and continues in `to`. Returns at the next switch to
  // `from`.
  [[gnu::no_sanitize_thread, gnu::noinline]] static void switch_to(Fiber& from, Fiber& to) {
    if (kThreadSanitizer && from.stack_.bottom() == nullptr) from.checker_ = tsan_current();
    if (kThreadSanitizer) from.unobserved_ = std::exchange(Unobserved::depth(), to.unobserved_);
    if (kAddressSanitizer) left() = &from;
    arrived_at() = &to;
    asan_start_switch(&from.fake_stack_, to.bottom_, to.bytes_);
    tsan_switch(to.checker_);
    Context::switch_stacks(from.context_, to.context_);
    from.arrive();
  }

  // Sets the name that TSan's reports show next to the context's number.
  void set_name(const std::string& name) { tsan_set_name(checker_, name.c_str()); }

  // For TSan: this fiber's accesses so far come before those of a context that acquires `token`.
  [[gnu::no_sanitize_thread, gnu::noinline]] void publish(void* token) {
    void* const own = tsan_current();
    tsan_switch(checker_);
    tsan_release(token);
    tsan_switch(own);
  }

 private:
  [[gnu::no_sanitize_thread]] static Fiber*& left() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }
  [[gnu::no_sanitize_thread]] static Fiber*& arrived_at() {
    static thread_local Fiber* fiber = nullptr;
    return fiber;
  }

  [[gnu::no_sanitize_thread]] static void first_arrival() {
    Fiber& me = *arrived_at();
    me.arrive();
    me.entry_();
  }

  // Stores the bounds of the previous stack, which ASan reports. A stack not allocated here (an OS
  // thread's) thus becomes known before a fiber switches back to it.
  [[gnu::no_sanitize_thread, gnu::always_inline]] inline void arrive() {
    if (kAddressSanitizer) asan_finish_switch(fake_stack_, &left()->bottom_, &left()->bytes_);
  }

  // TSan does not allow destroying a context that ignores accesses. A fiber suspended inside the
  // executor ignores them.
  [[gnu::no_sanitize_thread, gnu::noinline]] void end_checker() {
    void* const own = tsan_current();
    tsan_switch(checker_);
    if (unobserved_ > 0) tsan_ignore(false);
    tsan_switch(own);
    tsan_destroy(checker_);
  }

  Stack stack_;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void (*entry_)() = nullptr;
  Context context_;
  void* fake_stack_ = nullptr;  // ASan's fake stack
  void* checker_ = nullptr;     // TSan context
  int unobserved_ = 0;          // Unobserved::depth() at the last switch away
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

  void start_launch(int block_threads) {
    fresh_ = idle_.size();
    // At least two blocks: neighbouring blocks must not share fibers.
    window_ = std::max<std::size_t>(kRaceWindow, 2 * static_cast<std::size_t>(block_threads));
  }

  Fiber* take() {
    if (idle_.empty() || (kThreadSanitizer && fresh_ == 0 && all_.size() < window_)) return make();
    if (!kThreadSanitizer) {
      Fiber* const fiber = idle_.back();  // latest one used: its stack is still in the cache
      idle_.pop_back();
      return fiber;
    }
    if (fresh_ > 0) --fresh_;
    Fiber* const fiber = idle_.front();
    idle_.pop_front();
    return fiber;
  }

  void give_back(Fiber* fiber) { idle_.push_back(fiber); }

  // Destroys all fibers after a fault, which leaves some suspended within a thread. Publishes their
  // accesses to `token` first (see Fiber::publish).
  void discard(void* token) {
    for (const auto& fiber : all_) fiber->publish(token);
    idle_.clear();
    all_.clear();
  }

 private:
  Fiber* make() {
    all_.push_back(std::make_unique<Fiber>(entry_, kStackBytes, static_cast<int>(all_.size())));
    return all_.back().get();
  }

  void (*entry_)();
  std::vector<std::unique_ptr<Fiber>> all_;
  std::deque<Fiber*> idle_;
  std::size_t fresh_ = 0;  // number of idle fibers that this launch has not used yet
  std::size_t window_ = kRaceWindow;
};

}  // namespace llmc::host
