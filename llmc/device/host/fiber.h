// Fibers: flows of control with stacks of their own that the sanitizers know of.
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
  // The flow that is running already; it gets to know its stack when it is left.
  Fiber() = default;

  // One that calls entry() when it is first switched to. entry never returns. `number` shifts the
  // frames a little: stacks lie at multiples of the page size, and without it the frames of all
  // threads would compete for the same few sets of the caches.
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

  // Leaves `from`, the flow that is running, and goes on in `to`; comes back when somebody switches
  // to `from`.
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

  // What reports of the race checker call it, besides a number.
  void set_name(const std::string& name) { tsan_set_name(checker_, name.c_str()); }

  // For the race checker: what this fiber did so far comes before what they do who acquire `token`.
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

  // AddressSanitizer says where the stack is that we come from: how a stack which is not ours (the
  // operating system's thread's) becomes known before anybody has to go back to it.
  [[gnu::no_sanitize_thread, gnu::always_inline]] inline void arrive() {
    if (kAddressSanitizer) asan_finish_switch(fake_stack_, &left()->bottom_, &left()->bytes_);
  }

  // The checker wants no context to end while it ignores accesses, as one does that was left within
  // the executor.
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
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* checker_ = nullptr;     // ThreadSanitizer's context
  int unobserved_ = 0;          // Unobserved::depth() when it was left
};

// Fibers that run one CUDA thread after another, kept between launches: a stack costs two system
// calls, and a context of the race checker half a millisecond and most of a megabyte.
class FiberPool {
 public:
  explicit FiberPool(void (*entry)()) : entry_(entry) {}

  // For the race checker a fiber that serves a second thread puts the two in order. That is right
  // for threads of successive launches of a stream; within a launch it would hide races between
  // blocks, so there every thread gets a fresh one, up to this many.
  static constexpr std::size_t kRaceWindow = 1024;

  void start_launch(int block_threads) {
    fresh_ = idle_.size();
    // At least two blocks: neighbours must not share.
    window_ = std::max<std::size_t>(kRaceWindow, 2 * static_cast<std::size_t>(block_threads));
  }

  Fiber* take() {
    if (idle_.empty() || (kThreadSanitizer && fresh_ == 0 && all_.size() < window_)) return make();
    if (!kThreadSanitizer) {
      Fiber* const fiber = idle_.back();  // its stack is still in the cache
      idle_.pop_back();
      return fiber;
    }
    if (fresh_ > 0) --fresh_;
    Fiber* const fiber = idle_.front();
    idle_.pop_front();
    return fiber;
  }

  void give_back(Fiber* fiber) { idle_.push_back(fiber); }

  // After a fault, when fibers are stuck in the middle of a thread; `token`: see Fiber::publish.
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
  std::size_t fresh_ = 0;  // how many of the idle ones this launch has not used yet
  std::size_t window_ = kRaceWindow;
};

}  // namespace llmc::host
