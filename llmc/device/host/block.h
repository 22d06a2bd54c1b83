// One thread block on one OS thread: its CUDA threads run on fibers and meet at collectives.
//
// A fiber runs one thread after another. Another fiber takes over only if a thread has to wait, so
// a kernel without collectives is a loop of calls on one stack. (With TSan every thread has its own
// fiber.) The last thread to arrive at a collective executes it for all and continues; the others
// become ready. If threads wait, but none is ready and none is left to start, the barrier is
// divergent. The error then lists how many threads wait at each call site.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/host/block_thread.h"
#include "llmc/device/host/fiber.h"
#include "llmc/device/host/rendezvous.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/shared_arena.h"

namespace llmc::host {

class Block {
 public:
  Block() : slots_(std::make_unique<ThreadSlot[]>(kMaxBlockThreads)) {
    for (int i = 0; i < kMaxBlockThreads; ++i) slots_[i].index = i;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // The block and the CUDA thread that the calling OS thread is running; null outside a launch.
  static Block*& current() {
    static thread_local Block* block = nullptr;
    return block;
  }
  static ThreadSlot*& thread() {
    static thread_local ThreadSlot* slot = nullptr;
    return slot;
  }

  // For TSan, called before and after the blocks of a launch: the caller's earlier accesses come
  // before those of every thread. The caller is ordered with the launches so far only by settle(),
  // so if it starts an overlapped launch without it, the threads of that launch are ordered with
  // the launches that the last settle() knew. Blocks are not ordered with each other.
  void start_launch(int threads, bool overlapped) {
    TsanIgnoreScope bookkeeping;
    fibers_ = &pools_.next(overlapped);
    fibers_->start_launch(threads);
    tsan_release(&start_token_);
  }
  void end_launch() {
    TsanIgnoreScope bookkeeping;
    finished_.acquire(&end_token_);
    finished_.release(&finished_token_);
  }

  // For TSan: all launches so far come before what the caller does next.
  void settle() { tsan_acquire(&finished_token_); }
  // For TSan: all launches so far come before what a context does after it acquires `token`.
  void publish(void* token) {
    TsanIgnoreScope bookkeeping;
    finished_.release(token);
  }

  // Runs one block to completion; throws an Error if the executor detects a fault.
  void run(const Launch& launch, Coordinates coordinates) {
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

  Coordinates grid() const { return launch_.grid; }
  Coordinates coordinates() const { return coordinates_; }
  int threads() const { return launch_.threads; }

  // The calling thread comes after all earlier launches of the stream. Every block of an overlapped
  // launch must call it in at least one thread: later launches wait only for this launch.
  void wait_for_previous_launch() {
    TsanIgnoreScope bookkeeping;
    has_waited_ = true;
    settle();
  }
  // Ends the launch with an Error if the block is overlapped and has not waited yet.
  void require_wait(const CallSite& site) {
    TsanIgnoreScope bookkeeping;
    if (has_waited_ || !launch_.overlapped) return;
    stop([&] { return site.text() + " comes before wait_for_previous_launch"; });
  }

  // Memory in which the threads of the caller's warp (or block) exchange values at their next
  // meeting. It is writable before the meeting and in combine(), and readable until the caller
  // arrives at the meeting after that.
  template <class Values>
  Values& warp_buffer() {
    return buffer_of<Values>(warps_[thread()->index / kWarpSize]);
  }
  template <class Values>
  Values& block_buffer() {
    return buffer_of<Values>(all_);
  }

  // Waits until all threads of the caller's warp (or block) have arrived. The last one calls
  // combine(), then all continue. `synchronises`: the meeting also orders memory accesses.
  // `barrier_only`: threads that have returned are not waited for.
  template <class Combine>
  void meet_warp(const CallSite& site, bool synchronises, Combine&& combine) {
    const int first = thread()->index / kWarpSize * kWarpSize;
    meet(warps_[first / kWarpSize], first, kWarpSize, kWarpSize, site, synchronises, combine);
  }
  template <class Combine>
  void meet_block(const CallSite& site, bool barrier_only, Combine&& combine) {
    TsanIgnoreScope bookkeeping;
    all_.barrier_only = barrier_only;
    meet(all_, 0, threads(), barrier_only ? num_live_threads_ : threads(), site, true, combine);
  }

  // Returns a piece of the shared memory. `real_offset` is its offset on a GPU; `padded_offset` is
  // its offset here, where a poisoned gap follows every piece.
  void* shared_piece(std::size_t real_offset, std::size_t padded_offset, std::size_t bytes) {
    TsanIgnoreScope bookkeeping;
    if (real_offset + bytes > launch_.shared_bytes) {
      stop([&] {
        return "the kernel takes " + std::to_string(real_offset + bytes) +
               " bytes of shared memory; its launch provides " +
               std::to_string(launch_.shared_bytes);
      });
    }
    char* piece = shared_.piece(padded_offset, bytes);
    if (piece == nullptr && bytes > 0) {
      stop([] { return std::string("the kernel takes more than 64 pieces of shared memory"); });
    }
    return piece;
  }

  // Ends the launch with an Error whose text is message(); called by a kernel's thread. The
  // thread's stack is abandoned without unwinding, so no object on it may own memory.
  template <class Message>
  [[noreturn]] void stop(Message&& message) {
    TsanIgnoreScope bookkeeping;
    fault_ = message();
    resume(*thread()->fiber, nullptr);
    std::abort();  // unreachable: this fiber is never resumed
  }

 private:
  static constexpr int kMeetings = 1 + kMaxBlockThreads / kWarpSize;
  struct Token {
    char bytes[8];  // TSan distinguishes addresses in units of 8 bytes
  };

  // ---- threads ----

  // Entry function of a fiber; never returns.
  static void run_threads() {
    for (;;) current_unordered()->run_thread();
  }

  // The block, read before anything orders this context with the OS thread that runs it now.
  static Block* current_unordered() {
    TsanIgnoreScope bookkeeping;
    return current();
  }

  void run_thread() {
    tsan_acquire(&start_token_);
    const KernelCall kernel = launch_.kernel;
    kernel.call(kernel.closure);
    finish_thread();
  }

  // Ends the current thread. Returns when this fiber has another thread to run.
  void finish_thread() {
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

  // TSan orders a new context after all that its creator has observed, which must not include other
  // threads of the block. Therefore all fibers are taken before the first thread starts. Meetings
  // get memory that earlier blocks did not use.
  void prepare_tsan() {
    for (int i = 0; i < threads(); ++i) {
      slots_[i].fiber = fibers_->take();
      slots_[i].fiber->set_name("thread " + std::to_string(i) + " of block " + coordinates_text());
    }
    tokens_ = std::make_unique<Token[]>(2 * kMeetings);
  }

  [[noreturn]] void stop_for_copies(const PendingCopy& copy) {
    stop([&] {
      return "a thread returned and never waited for " +
             CallSite{"copy_async_16", copy.location}.text();
    });
  }

  ThreadSlot* start() {
    ThreadSlot& slot = slots_[next_to_start_++];
    slot.done = false;
    slot.copy_group = 0;
    return thread() = &slot;
  }

  ThreadSlot* start_next() {
    ThreadSlot* const slot = start();
    if (!kThreadSanitizer) slot->fiber = fibers_->take();
    return slot;
  }

  // For a fiber, which an exception must not leave. Without memory for the next thread's stack,
  // returns null, so that the executor reports the error.
  ThreadSlot* start_next_or_fail() {
    try {
      return start_next();
    } catch (const Error& error) {
      fault_ = error.what();
      return nullptr;
    }
  }

  // Switches to another thread: first to a ready one, then to one that has not started. If there is
  // neither, reports a stuck block or returns to the executor.
  void leave(Fiber& from, bool others_wait) {
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

  // Switches to thread `to`; null switches back to the executor.
  void resume(Fiber& from, ThreadSlot* to) {
    thread() = to;
    Fiber::switch_to(from, to != nullptr ? *to->fiber : main_);
  }

  template <class Values>
  static Values& buffer_of(Rendezvous& meeting) {
    static_assert(sizeof(Values) <= Rendezvous::kBufferBytes &&
                  std::is_trivially_copyable_v<Values>);
    return *reinterpret_cast<Values*>(meeting.buffers[meeting.parity]);
  }

  template <class Combine>
  void meet(Rendezvous& meeting, int first, int count, int expected, const CallSite& site,
            bool synchronises, Combine&& combine) {
    TsanIgnoreScope bookkeeping;
    ThreadSlot& self = *thread();
    self.site = &site;
    if (meeting.arrived == 0) {
      meeting.site = &site;
    } else if (!meeting.site->same_as(site)) {
      report_divergence(meeting);
    }
    Token* token = token_of(meeting);
    if (synchronises) tsan_release(token);
    if (++meeting.arrived == expected) {
      combine();
      complete(meeting, first, first + count);
    } else {
      self.waiting = &meeting;
      leave(*self.fiber, true);
    }
    if (synchronises) tsan_acquire(token);
  }

  // Each meeting point has two tokens, as it has two buffers. A fast thread may release at the next
  // meeting while a slow one is still leaving this one. With one token, the slow thread would
  // acquire what the fast one did in between.
  Token* token_of(const Rendezvous& meeting) {
    if (!kThreadSanitizer) return nullptr;
    const std::ptrdiff_t index = &meeting == &all_ ? 0 : 1 + (&meeting - warps_);
    return tokens_.get() + 2 * index + meeting.parity;
  }

  // Completes a meeting: the threads that wait in it become ready.
  void complete(Rendezvous& meeting, int first, int end) {
    meeting.arrived = 0;
    meeting.parity ^= 1;
    for (int i = first; i < end; ++i) {
      if (slots_[i].waiting != &meeting) continue;
      slots_[i].waiting = nullptr;
      ready_[(ready_first_ + ready_count_++) % kMaxBlockThreads] = &slots_[i];
    }
  }

  ThreadSlot* pop_ready() {
    ThreadSlot* slot = ready_[ready_first_];
    ready_first_ = (ready_first_ + 1) % kMaxBlockThreads;
    --ready_count_;
    return slot;
  }

  // ---- faults ----

  std::string coordinates_text() const {
    std::string text = "(";
    text += std::to_string(coordinates_.x) + ", " + std::to_string(coordinates_.y) + ", ";
    return text + std::to_string(coordinates_.z) + ")";
  }

  [[noreturn]] void report_divergence(const Rendezvous& meeting) {
    stop([&] {
      return "divergent barrier: thread " + std::to_string(thread()->index) + " is in " +
             thread()->site->text() + " while other threads of its group wait in " +
             meeting.site->text();
    });
  }

  [[noreturn]] void report_stuck() {
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

  // Resets the block as if none had run yet, and throws the fault.
  [[noreturn]] void report_fault() {
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

  Launch launch_;  // a copy: a thread of an overlapped launch must not read the caller's stack
  bool has_waited_ = false;  // a thread has called wait_for_previous_launch()
  Coordinates coordinates_{};
  int num_live_threads_ = 0, next_to_start_ = 0;
  Fiber main_;
  FiberPools pools_{&Block::run_threads};
  FiberPool* fibers_ = &pools_.ordinary();  // those of the current launch
  std::unique_ptr<ThreadSlot[]> slots_;
  ThreadSlot* ready_[kMaxBlockThreads];
  int ready_first_ = 0, ready_count_ = 0;
  Rendezvous all_;
  Rendezvous warps_[kMaxBlockThreads / kWarpSize];
  SharedArena shared_;
  std::string fault_;

  // Tokens for TSan. `tokens_` is new for each block, so that no token orders two blocks.
  std::unique_ptr<Token[]> tokens_;
  char start_token_ = 0, end_token_ = 0, finished_token_ = 0;
  TsanContext finished_;  // has observed all launches so far
};

}  // namespace llmc::host
