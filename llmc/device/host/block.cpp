#include "llmc/device/host/block.h"

#include <map>
#include <utility>

#include "llmc/base/error.h"

namespace llmc {

namespace host {

Block::Block() : slots_(std::make_unique<ThreadSlot[]>(kMaxBlockThreads)) {
  for (int i = 0; i < kMaxBlockThreads; ++i) slots_[i].index = i;
}

void Block::start_launch(int threads, bool overlapped) {
  TsanIgnoreScope bookkeeping;
  fibers_ = &pools_.next(overlapped);
  fibers_->start_launch(threads);
  tsan_release(&start_token_);
}

void Block::end_launch() {
  TsanIgnoreScope bookkeeping;
  finished_.acquire(&end_token_);
  finished_.release(&finished_token_);
}

void Block::publish(void* token) {
  TsanIgnoreScope bookkeeping;
  finished_.release(token);
}

void Block::run(const Launch& launch, Coordinates coordinates) {
  TsanIgnoreScope bookkeeping;
  launch_ = launch;
  has_waited_ = false;
  coordinates_ = coordinates;
  num_live_threads_ = launch.threads;
  next_to_start_ = 0;
  if (kThreadSanitizer) prepare_tsan();
  shared_.start_block(launch.shared_bytes);
  current() = this;
  resume(main_, start_next());
  current() = nullptr;
  thread() = nullptr;
  shared_.end_block();
  if (fault_.empty() && launch.overlapped && !has_waited_) {
    fault_ = "the kernel was launched overlapped and never waited for the previous launch";
  }
  if (!fault_.empty()) report_fault();
}

void Block::wait_for_previous_launch() {
  TsanIgnoreScope bookkeeping;
  has_waited_ = true;
  settle();
}

void Block::require_wait(const CallSite& site) {
  TsanIgnoreScope bookkeeping;
  if (has_waited_ || !launch_.overlapped) return;
  stop([&] { return site.text() + " comes before wait_for_previous_launch"; });
}

void* Block::shared_piece(std::size_t real_offset, std::size_t padded_offset, std::size_t bytes) {
  TsanIgnoreScope bookkeeping;
  if (real_offset + bytes > launch_.shared_bytes) {
    stop([&] {
      return "the kernel takes " + std::to_string(real_offset + bytes) +
             " bytes of shared memory; its launch provides " + std::to_string(launch_.shared_bytes);
    });
  }
  char* piece = shared_.piece(padded_offset, bytes);
  if (piece == nullptr && bytes > 0) {
    stop([] { return std::string("the kernel takes more than 64 pieces of shared memory"); });
  }
  return piece;
}

void Block::run_threads() {
  for (;;) current_unordered()->run_thread();
}

Block* Block::current_unordered() {
  TsanIgnoreScope bookkeeping;
  return current();
}

void Block::run_thread() {
  tsan_acquire(&start_token_);
  const KernelCall kernel = launch_.kernel;
  kernel.call(kernel.closure);
  finish_thread();
}

void Block::finish_thread() {
  TsanIgnoreScope bookkeeping;
  ThreadSlot& self = *thread();
  self.done = true;
  --num_live_threads_;
  if (!self.copies.empty()) stop_for_copies(self.copies[0]);
  tsan_release(&end_token_);
  if (all_.arrived > 0 && all_.barrier_only && all_.arrived == num_live_threads_)
    complete(all_, 0, threads());
  if (!kThreadSanitizer && ready_count_ == 0 && next_to_start_ < threads()) {
    start()->fiber = self.fiber;
    return;
  }
  fibers_->recycle(self.fiber);
  leave(*self.fiber, num_live_threads_ > 0);
}

void Block::prepare_tsan() {
  for (int i = 0; i < threads(); ++i) {
    slots_[i].fiber = fibers_->take();
    slots_[i].fiber->set_name("thread " + std::to_string(i) + " of block " + coordinates_text());
  }
  tokens_ = std::make_unique<Token[]>(2 * kMeetings);
}

void Block::stop_for_copies(const PendingCopy& copy) {
  stop([&] {
    return "a thread returned and never waited for " +
           CallSite{"copy_async_16", copy.location}.text();
  });
}

ThreadSlot* Block::start() {
  ThreadSlot& slot = slots_[next_to_start_++];
  slot.done = false;
  slot.copy_group = 0;
  return thread() = &slot;
}

ThreadSlot* Block::start_next() {
  ThreadSlot* const slot = start();
  if (!kThreadSanitizer) slot->fiber = fibers_->take();
  return slot;
}

ThreadSlot* Block::start_next_or_fail() {
  try {
    return start_next();
  } catch (const Error& error) {
    fault_ = error.what();
    return nullptr;
  }
}

void Block::leave(Fiber& from, bool others_wait) {
  if (ready_count_ > 0) {
    resume(from, pop_ready());
  } else if (next_to_start_ < threads()) {
    resume(from, start_next_or_fail());
  } else if (others_wait) {
    report_stuck();
  } else {
    resume(from, nullptr);
  }
}

void Block::resume(Fiber& from, ThreadSlot* to) {
  thread() = to;
  Fiber::switch_to(from, to != nullptr ? *to->fiber : main_);
}

Block::Token* Block::token_of(const Rendezvous& meeting) {
  if (!kThreadSanitizer) return nullptr;
  const std::ptrdiff_t index = &meeting == &all_ ? 0 : 1 + (&meeting - warps_);
  return tokens_.get() + 2 * index + meeting.parity;
}

void Block::complete(Rendezvous& meeting, int first, int end) {
  meeting.arrived = 0;
  meeting.parity ^= 1;
  for (int i = first; i < end; ++i) {
    if (slots_[i].waiting != &meeting) continue;
    slots_[i].waiting = nullptr;
    ready_[(ready_first_ + ready_count_++) % kMaxBlockThreads] = &slots_[i];
  }
}

ThreadSlot* Block::pop_ready() {
  ThreadSlot* slot = ready_[ready_first_];
  ready_first_ = (ready_first_ + 1) % kMaxBlockThreads;
  --ready_count_;
  return slot;
}

std::string Block::coordinates_text() const {
  std::string text = "(";
  text += std::to_string(coordinates_.x) + ", " + std::to_string(coordinates_.y) + ", ";
  return text + std::to_string(coordinates_.z) + ")";
}

void Block::report_divergence(const Rendezvous& meeting) {
  stop([&] {
    return "divergent barrier: thread " + std::to_string(thread()->index) + " is in " +
           thread()->site->text() + " while other threads of its group wait in " +
           meeting.site->text();
  });
}

void Block::report_stuck() {
  stop([&] {
    std::map<std::string, int> waiting;
    int returned = 0;
    for (int i = 0; i < threads(); ++i) {
      if (slots_[i].done) ++returned;
      if (slots_[i].waiting != nullptr) ++waiting[slots_[i].site->text()];
    }
    std::string text = "divergent barrier: of " + std::to_string(threads()) + " threads";
    for (const auto& [site, count] : waiting) {
      text += ", " + std::to_string(count) + " wait forever in " + site;
    }
    return text + ", " + std::to_string(returned) + " have returned";
  });
}

void Block::report_fault() {
  fibers_->discard(&end_token_);
  end_launch();
  for (int i = 0; i < kMaxBlockThreads; ++i) {
    slots_[i].waiting = nullptr;
    slots_[i].copies.clear();
  }
  ready_first_ = ready_count_ = 0;
  all_.arrived = 0;
  for (Rendezvous& warp : warps_) warp.arrived = 0;
  const std::string fault = std::exchange(fault_, {});
  fail(fault + ", in block " + coordinates_text());
}

}  // namespace host

}  // namespace llmc
