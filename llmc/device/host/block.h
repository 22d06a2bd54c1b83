// One thread block on one OS thread: its CUDA threads run on fibers and meet at collectives.
//
// A fiber runs one thread after another. Another fiber takes over only if a thread has to wait, so
// a kernel without collectives is a loop of calls on one stack. (With TSan every thread has its own
// fiber.) The last thread to arrive at a collective executes it for all and continues; the others
// become ready. If threads wait, but none is ready and none is left to start, the barrier is
// divergent. The error then lists how many threads wait at each call site.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include "llmc/device/host/block_thread.h"
#include "llmc/device/host/fiber.h"
#include "llmc/device/host/rendezvous.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/shared_arena.h"

namespace llmc {

namespace host {

class Block {
 public:
  Block();
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
  void start_launch(int threads, bool overlapped);
  void end_launch();

  // For TSan: all launches so far come before what the caller does next.
  void settle() { tsan_acquire(&finished_token_); }
  // For TSan: all launches so far come before what a context does after it acquires `token`.
  void publish(void* token);

  // Runs one block to completion; throws an Error if the executor detects a fault.
  void run(const Launch& launch, Coordinates coordinates);

  Coordinates grid() const { return launch_.grid; }
  Coordinates coordinates() const { return coordinates_; }
  int threads() const { return launch_.threads; }

  // The calling thread comes after all earlier launches of the stream. Every block of an overlapped
  // launch must call it in at least one thread: later launches wait only for this launch.
  void wait_for_previous_launch();
  // Ends the launch with an Error if the block is overlapped and has not waited yet.
  void require_wait(const CallSite& site);

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
  void* shared_piece(std::size_t real_offset, std::size_t padded_offset, std::size_t bytes);

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
  static void run_threads();

  // The block, read before anything orders this context with the OS thread that runs it now.
  static Block* current_unordered();

  void run_thread();

  // Ends the current thread. Returns when this fiber has another thread to run.
  void finish_thread();

  // TSan orders a new context after all that its creator has observed, which must not include other
  // threads of the block. Therefore all fibers are taken before the first thread starts. Meetings
  // get memory that earlier blocks did not use.
  void prepare_tsan();

  [[noreturn]] void stop_for_copies(const PendingCopy& copy);

  ThreadSlot* start();

  ThreadSlot* start_next();

  // For a fiber, which an exception must not leave. Without memory for the next thread's stack,
  // returns null, so that the executor reports the error.
  ThreadSlot* start_next_or_fail();

  // Switches to another thread: first to a ready one, then to one that has not started. If there is
  // neither, reports a stuck block or returns to the executor.
  void leave(Fiber& from, bool others_wait);

  // Switches to thread `to`; null switches back to the executor.
  void resume(Fiber& from, ThreadSlot* to);

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
  Token* token_of(const Rendezvous& meeting);

  // Completes a meeting: the threads that wait in it become ready.
  void complete(Rendezvous& meeting, int first, int end);

  ThreadSlot* pop_ready();

  // ---- faults ----

  std::string coordinates_text() const;

  [[noreturn]] void report_divergence(const Rendezvous& meeting);

  [[noreturn]] void report_stuck();

  // Resets the block as if none had run yet, and throws the fault.
  [[noreturn]] void report_fault();

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

}  // namespace host

}  // namespace llmc
