// One thread block on one OS thread: its CUDA threads are fibers that meet at collectives.
//
// A fiber runs one thread after another; only when a thread has to wait does another fiber take
// over, so a kernel without collectives is a loop of calls on a single stack. The last thread to
// arrive at a collective carries it out for all and goes on; the others become ready. When no
// thread is ready, none is left to start and some still wait, the block is stuck: the barrier is
// divergent, and the error says who waits where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/host/fiber.h"
#include "llmc/device/host/rendezvous.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/shared_arena.h"

namespace llmc::host {

// A copy that cp.async has been asked for and that is carried out at the wait.
struct PendingCopy {
  char* destination;
  const char* source;
  bool valid;
  int group;
  Where where;
};

struct ThreadSlot {
  int index = 0;
  bool done = false;
  Fiber* fiber = nullptr;
  Rendezvous* waiting = nullptr;
  const Place* place = nullptr;  // where it waits, if it does
  int copy_group = 0;
  std::vector<PendingCopy> copies;
};

struct Coordinates {
  std::int64_t x, y, z;
};

// A kernel with its arguments: call(closure) runs it for the thread that calls.
struct KernelCall {
  void (*call)(const void* closure);
  const void* closure;
};

// What the blocks of one launch share.
struct Launch {
  KernelCall kernel;
  Coordinates grid;
  int threads;
  std::size_t shared_bytes;
};

class Block {
 public:
  Block() : fibers_(&Block::run_threads), slots_(std::make_unique<ThreadSlot[]>(kMaxBlockThreads)) {
    for (int i = 0; i < kMaxBlockThreads; ++i) slots_[i].index = i;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // The block and thread that the calling OS thread is in the middle of.
  static Block*& current() {
    static thread_local Block* block = nullptr;
    return block;
  }
  static ThreadSlot*& thread() {
    static thread_local ThreadSlot* slot = nullptr;
    return slot;
  }

  // Around the blocks of a launch: what the caller did before comes before every thread, and what
  // the threads did comes before what the caller does next. Between, blocks have no order.
  void start_launch(int threads) {
    Unobserved bookkeeping;
    fibers_.start_launch(threads);
    tsan_release(&start_token_);
  }
  void end_launch() { tsan_acquire(&end_token_); }

  // Runs one block to its end; throws an Error for a fault the executor itself finds.
  void run(const Launch& launch, Coordinates place) {
    Unobserved bookkeeping;
    launch_ = &launch;
    place_ = place;
    alive_ = launch.threads;
    next_to_start_ = 0;
    if (kThreadSanitizer) prepare_checker();
    shared_.start_block(launch.shared_bytes);
    current() = this;
    resume(main_, start_next());
    current() = nullptr;
    thread() = nullptr;
    shared_.end_block();
    if (!fault_.empty()) report_fault();
  }

  Coordinates grid() const { return launch_->grid; }
  Coordinates place() const { return place_; }
  int threads() const { return launch_->threads; }

  // What the threads of the caller's warp (or block) leave for each other at their next meeting.
  // Readable until the caller's next meeting but one, writable before the meeting and in combine().
  template <class Room>
  Room& warp_room() {
    return room_of<Room>(warps_[thread()->index / kWarpSize]);
  }
  template <class Room>
  Room& block_room() {
    return room_of<Room>(all_);
  }

  // The threads of the caller's warp (or block) meet. The last one calls combine(), then all go on.
  // `synchronises`: memory is ordered too.
  template <class Combine>
  void meet_warp(const Place& place, bool synchronises, Combine&& combine) {
    const int first = thread()->index / kWarpSize * kWarpSize;
    meet(warps_[first / kWarpSize], first, kWarpSize, kWarpSize, place, synchronises, combine);
  }
  template <class Combine>
  void meet_block(const Place& place, bool barrier_only, Combine&& combine) {
    Unobserved bookkeeping;
    all_.barrier_only = barrier_only;
    meet(all_, 0, threads(), barrier_only ? alive_ : threads(), place, true, combine);
  }

  // A piece of the shared memory: `real_offset` is where it starts on a GPU, `padded_offset` here,
  // where a poisoned gap follows every piece.
  void* shared_piece(std::size_t real_offset, std::size_t padded_offset, std::size_t bytes) {
    Unobserved bookkeeping;
    if (real_offset + bytes > launch_->shared_bytes) {
      stop([&] {
        return "the kernel takes " + std::to_string(real_offset + bytes) +
               " bytes of shared memory, its launch gave " + std::to_string(launch_->shared_bytes);
      });
    }
    char* piece = shared_.piece(padded_offset, bytes);
    if (piece == nullptr && bytes > 0) {
      stop([] { return std::string("more than 64 pieces of shared memory"); });
    }
    return piece;
  }

  // Ends the launch with the error whose text message() makes; called by a kernel's thread. The
  // thread's stack is given up as it is, so nothing that owns memory may be left on it.
  template <class Message>
  [[noreturn]] void stop(Message&& message) {
    Unobserved bookkeeping;
    fault_ = message();
    resume(*thread()->fiber, nullptr);
    std::abort();  // nobody comes back here
  }

 private:
  static constexpr int kMeetings = 1 + kMaxBlockThreads / kWarpSize;
  struct Token {
    char bytes[8];  // the unit in which the race checker tells addresses apart
  };

  // ---- threads ----

  // The life of a fiber.
  static void run_threads() {
    for (;;) current()->run_thread();
  }

  void run_thread() {
    tsan_acquire(&start_token_);
    const KernelCall kernel = launch_->kernel;
    kernel.call(kernel.closure);
    finish_thread();
  }

  // Returns when this fiber has another thread to run.
  void finish_thread() {
    Unobserved bookkeeping;
    ThreadSlot& me = *thread();
    me.done = true;
    --alive_;
    if (!me.copies.empty()) stop_for_copies(me.copies[0]);
    tsan_release(&end_token_);
    if (all_.arrived > 0 && all_.barrier_only && all_.arrived == alive_) open(all_, 0, threads());
    if (!kThreadSanitizer && ready_count_ == 0 && next_to_start_ < threads()) {
      start()->fiber = me.fiber;
      return;
    }
    fibers_.give_back(me.fiber);
    leave(*me.fiber, alive_ > 0);
  }

  // A context inherits what its maker knows, and must not know other threads of the block: all are
  // made here, before the first of them begins. Meetings get memory that blocks before did not use.
  void prepare_checker() {
    for (int i = 0; i < threads(); ++i) {
      slots_[i].fiber = fibers_.take();
      slots_[i].fiber->set_name("thread " + std::to_string(i) + " of block " + place_text());
    }
    tokens_ = std::make_unique<Token[]>(2 * kMeetings);
  }

  [[noreturn]] void stop_for_copies(const PendingCopy& copy) {
    stop([&] {
      return "a thread returned and never waited for " + Place{"copy_async_16", copy.where}.text();
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
    if (!kThreadSanitizer) slot->fiber = fibers_.take();
    return slot;
  }

  // Somebody else's turn: first those who can go on, then those who have not begun.
  void leave(Fiber& from, bool others_wait) {
    if (ready_count_ > 0) {
      resume(from, pop_ready());
    } else if (next_to_start_ < threads()) {
      resume(from, start_next());
    } else if (others_wait) {
      report_stuck();
    } else {
      resume(from, nullptr);
    }
  }

  // `to` null: back to the executor.
  void resume(Fiber& from, ThreadSlot* to) {
    thread() = to;
    Fiber::switch_to(from, to != nullptr ? *to->fiber : main_);
  }

  template <class Room>
  static Room& room_of(Rendezvous& meeting) {
    static_assert(sizeof(Room) <= Rendezvous::kRoomBytes && std::is_trivially_copyable_v<Room>);
    return *reinterpret_cast<Room*>(meeting.rooms[meeting.turn]);
  }

  template <class Combine>
  void meet(Rendezvous& meeting, int first, int count, int expected, const Place& place,
            bool synchronises, Combine&& combine) {
    Unobserved bookkeeping;
    ThreadSlot& me = *thread();
    me.place = &place;
    if (meeting.arrived == 0) {
      meeting.place = &place;
    } else if (!meeting.place->same_as(place)) {
      report_divergence(meeting);
    }
    Token* token = token_of(meeting);
    if (synchronises) tsan_release(token);
    if (++meeting.arrived == expected) {
      combine();
      open(meeting, first, first + count);
    } else {
      me.waiting = &meeting;
      leave(*me.fiber, true);
    }
    if (synchronises) tsan_acquire(token);
  }

  // Two, as there are two rooms: a fast thread that has already reached the next meeting must not
  // tell a slow one, still leaving this one, what it did in between.
  Token* token_of(const Rendezvous& meeting) {
    if (!kThreadSanitizer) return nullptr;
    const std::ptrdiff_t index = &meeting == &all_ ? 0 : 1 + (&meeting - warps_);
    return tokens_.get() + 2 * index + meeting.turn;
  }

  // Everyone is here: those who waited may go on.
  void open(Rendezvous& meeting, int first, int end) {
    meeting.arrived = 0;
    meeting.turn ^= 1;
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

  std::string place_text() const {
    std::string text = "(";
    text += std::to_string(place_.x) + ", " + std::to_string(place_.y) + ", ";
    return text + std::to_string(place_.z) + ")";
  }

  [[noreturn]] void report_divergence(const Rendezvous& meeting) {
    stop([&] {
      return "divergent barrier: thread " + std::to_string(thread()->index) + " is in " +
             thread()->place->text() + " while others of its group wait in " +
             meeting.place->text();
    });
  }

  [[noreturn]] void report_stuck() {
    stop([&] {
      std::map<std::string, int> waiting;
      int returned = 0;
      for (int i = 0; i < threads(); ++i) {
        if (slots_[i].done) ++returned;
        if (slots_[i].waiting != nullptr) ++waiting[slots_[i].place->text()];
      }
      std::string text = "divergent barrier: of " + std::to_string(threads()) + " threads";
      for (const auto& [place, count] : waiting) {
        text += ", " + std::to_string(count) + " wait for ever in " + place;
      }
      return text + ", " + std::to_string(returned) + " have returned";
    });
  }

  // Leaves everything as if no block had run yet.
  [[noreturn]] void report_fault() {
    fibers_.discard(&end_token_);
    end_launch();
    for (int i = 0; i < kMaxBlockThreads; ++i) {
      slots_[i].waiting = nullptr;
      slots_[i].copies.clear();
    }
    ready_first_ = ready_count_ = 0;
    all_.arrived = 0;
    for (Rendezvous& warp : warps_) warp.arrived = 0;
    const std::string fault = std::exchange(fault_, {});
    fail(fault, "in block " + place_text());
  }

  const Launch* launch_ = nullptr;
  Coordinates place_{};
  int alive_ = 0, next_to_start_ = 0;
  Fiber main_;
  FiberPool fibers_;
  std::unique_ptr<ThreadSlot[]> slots_;
  ThreadSlot* ready_[kMaxBlockThreads];
  int ready_first_ = 0, ready_count_ = 0;
  Rendezvous all_;
  Rendezvous warps_[kMaxBlockThreads / kWarpSize];
  SharedArena shared_;
  std::string fault_;

  // The race checker's: new for each block, so that blocks do not meet.
  std::unique_ptr<Token[]> tokens_;
  char start_token_ = 0, end_token_ = 0;
};

}  // namespace llmc::host
