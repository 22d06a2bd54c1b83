#include "llmc/device/host/fiber.h"

#include <algorithm>
#include <utility>

namespace llmc {

namespace host {

Fiber::Fiber(void (*entry)(), std::size_t stack_bytes, int number)
    : stack_(stack_bytes),
      bottom_(stack_.bottom()),
      bytes_(stack_bytes),
      entry_(entry),
      tsan_context_(tsan_create()) {
  constexpr int kShifts = 32, kShiftBytes = 128;
  const std::size_t shift = static_cast<std::size_t>(number % kShifts) * kShiftBytes;
  context_.start(stack_.bottom() + stack_bytes - shift, stack_bytes - shift, &Fiber::enter);
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  if (kThreadSanitizer && from.stack_.bottom() == nullptr) from.tsan_context_ = tsan_current();
  if (kThreadSanitizer)
    from.ignore_depth_ = std::exchange(TsanIgnoreScope::depth(), to.ignore_depth_);
  if (kAddressSanitizer) previous() = &from;
  current() = &to;
  asan_start_switch(&from.fake_stack_, to.bottom_, to.bytes_);
  tsan_switch(to.tsan_context_);
  Context::switch_stacks(from.context_, to.context_);
  from.finish_switch();
}

void Fiber::publish(void* token) {
  void* const caller = tsan_current();
  tsan_switch(tsan_context_);
  tsan_release(token);
  tsan_switch(caller);
}

Fiber*& Fiber::previous() {
  static thread_local Fiber* fiber = nullptr;
  return fiber;
}

Fiber*& Fiber::current() {
  static thread_local Fiber* fiber = nullptr;
  return fiber;
}

void Fiber::enter() {
  Fiber& self = *current();
  self.finish_switch();
  self.entry_();
}

void Fiber::destroy_tsan_context() {
  void* const caller = tsan_current();
  tsan_switch(tsan_context_);
  if (ignore_depth_ > 0) tsan_ignore(false);
  tsan_switch(caller);
  tsan_destroy(tsan_context_);
}

void FiberPool::start_launch(int block_threads) {
  num_unused_ = idle_.size();
  // At least two blocks: neighbouring blocks must not share fibers.
  window_ = std::max<std::size_t>(kRaceWindow, 2 * static_cast<std::size_t>(block_threads));
}

Fiber* FiberPool::take() {
  if (idle_.empty() || (kThreadSanitizer && num_unused_ == 0 && all_.size() < window_))
    return create();
  if (!kThreadSanitizer) {
    Fiber* const fiber = idle_.back();  // latest one used: its stack is still in the cache
    idle_.pop_back();
    return fiber;
  }
  if (num_unused_ > 0) --num_unused_;
  Fiber* const fiber = idle_.front();
  idle_.pop_front();
  return fiber;
}

void FiberPool::discard(void* token) {
  for (const auto& fiber : all_) fiber->publish(token);
  idle_.clear();
  all_.clear();
}

Fiber* FiberPool::create() {
  all_.push_back(std::make_unique<Fiber>(entry_, kStackBytes, static_cast<int>(all_.size())));
  return all_.back().get();
}

FiberPools::FiberPools(void (*entry)()) : ordinary_(entry) {
  for (std::size_t i = 0; i < kOverlapped; ++i) overlapped_.emplace_back(entry);
}

}  // namespace host

}  // namespace llmc
