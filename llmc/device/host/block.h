// One thread block on one OS thread: its CUDA threads are fibers that meet at collectives.
//
// Thread 0 starts as a plain call. Only when a thread has to wait does the next one start on a
// stack of its own, so a kernel without collectives is a loop of calls on a single stack. The last
// thread to arrive at a collective carries it out for all and goes on; the others become ready.
// When no thread is ready, none is left to start and some still wait, the block is stuck: the
// barrier is divergent, and the error says who waits where.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "llmc/device/error.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/stack_switch.h"

namespace llmc::host {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxBlockThreads = 1024;

// What fresh memory holds: a signalling NaN in fp32 and in bf16, an absurd index as an integer.
inline constexpr std::uint16_t kUnwritten = 0x7FA1;

inline void fill_unwritten(void* memory, std::size_t bytes) {
  auto* words = static_cast<std::uint16_t*>(memory);
  for (std::size_t i = 0; i < bytes / 2; ++i) words[i] = kUnwritten;
}

struct Place {
  const char* what = "";
  std::source_location where;

  bool same_as(const Place& other) const {
    return where.line() == other.where.line() && what == other.what &&
           std::strcmp(where.file_name(), other.where.file_name()) == 0;
  }
  std::string text() const {
    return std::string(what) + " at " + where.file_name() + ":" + std::to_string(where.line());
  }
};

// Where threads meet: one for each warp, one for the block.
struct Rendezvous {
  int arrived = 0;
  bool barrier_only = false;  // those waiting exchange no values: threads that returned are not missed
  Place place;
  // For the race checker. Two, used in turn: a fast thread that has already reached the next
  // meeting must not tell a slow one, still leaving this one, what it did in between.
  int turn = 0;
  char tokens[2] = {};
};

// A copy that cp.async has been asked for and that is carried out at the wait.
struct PendingCopy {
  char* destination;
  const char* source;
  bool valid;
  int group;
};

struct ThreadSlot {
  int index = 0;
  bool done = false;
  Rendezvous* waiting = nullptr;
  Place place;
  void* operand = nullptr;
  char* stack = nullptr;
  Context context;
  void* fake_stack = nullptr;    // AddressSanitizer's
  void* tsan_context = nullptr;  // ThreadSanitizer's
  int copy_group = 0;
  std::vector<PendingCopy> copies;
};

struct Coordinates {
  std::int64_t x, y, z;
};

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { free_shared(); }

  // The block and thread that the calling OS thread is in the middle of.
  static Block*& current() {
    static thread_local Block* block = nullptr;
    return block;
  }
  static ThreadSlot*& thread() {
    static thread_local ThreadSlot* slot = nullptr;
    return slot;
  }

  // Runs one block to its end; throws an Error for a fault the executor itself finds.
  void run(const std::function<void()>& kernel, Coordinates grid, Coordinates place, int threads,
           std::size_t shared_bytes) {
    Unobserved bookkeeping;
    kernel_ = &kernel;
    grid_ = grid;
    place_ = place;
    prepare(threads, shared_bytes);
    Block* outer = current();
    current() = this;
    switch_to(nullptr, start_next());
    current() = outer;
    thread() = nullptr;
    clean_up();
    if (!fault_.empty()) fail(fault_, "in block " + place_text());
  }

  // What follows in the caller's context comes after all blocks run so far. Not done block by block:
  // blocks of one launch have no order, and the next block's threads inherit what the caller knows.
  void join() { tsan_acquire(&end_token_); }

  Coordinates grid() const { return grid_; }
  Coordinates place() const { return place_; }
  int threads() const { return thread_count_; }

  // The threads of the caller's warp (or block) meet. The last one calls combine(first, count) with
  // every thread's `operand` set, then all go on. `synchronises`: memory is ordered too.
  template <class Combine>
  void meet_warp(Place place, bool synchronises, void* operand, Combine&& combine) {
    ThreadSlot& me = *thread();
    const int warp = me.index / kWarpSize;
    meet(warps_[warp], kWarpSize, false, place, synchronises, operand,
         [&] { combine(&slots_[warp * kWarpSize], kWarpSize); });
  }
  template <class Combine>
  void meet_block(Place place, bool barrier_only, void* operand, Combine&& combine) {
    meet(all_, barrier_only ? alive_ : thread_count_, barrier_only, place, true, operand,
         [&] { combine(&slots_[0], thread_count_); });
  }

  // A piece of the shared memory: `real_offset` is where it starts on a GPU, `padded_offset` here,
  // where a poisoned gap follows every piece.
  void* shared_piece(std::size_t real_offset, std::size_t padded_offset, std::size_t bytes) {
    Unobserved bookkeeping;
    if (real_offset + bytes > shared_bytes_) {
      stop("the kernel takes " + std::to_string(real_offset + bytes) +
           " bytes of shared memory, its launch gave " + std::to_string(shared_bytes_));
    }
    if (padded_offset + bytes > shared_capacity()) stop("more than 64 pieces of shared memory");
    char* piece = shared_ + padded_offset;
    // Once for the block, or it would lift the poison off copies already under way.
    if (padded_offset >= shared_taken_) {
      shared_taken_ = padded_offset + bytes;
      unpoison(piece, bytes);
    }
    return piece;
  }

  // Ends the launch with an error; called by a kernel's thread, never returns.
  [[noreturn]] void stop(const std::string& fault) {
    Unobserved bookkeeping;
    fault_ = fault;
    leave_to(nullptr);
  }

 private:
  static constexpr std::size_t kGap = 128;
  static constexpr int kMaxPieces = 64;
  std::size_t shared_capacity() const { return shared_bytes_ + 2 * kGap * kMaxPieces; }

  std::string place_text() const {
    return "(" + std::to_string(place_.x) + ", " + std::to_string(place_.y) + ", " +
           std::to_string(place_.z) + ")";
  }

  void prepare(int threads, std::size_t shared_bytes) {
    if (!slots_) {
      slots_ = std::make_unique<ThreadSlot[]>(kMaxBlockThreads);
      for (int i = 0; i < kMaxBlockThreads; ++i) slots_[i].index = i;
    }
    thread_count_ = alive_ = threads;
    next_to_start_ = 0;
    ready_first_ = ready_count_ = 0;
    fault_.clear();
    all_ = Rendezvous{};
    for (auto& warp : warps_) warp = Rendezvous{};
    prepare_stacks();
    shared_bytes_ = shared_bytes;
    shared_taken_ = 0;
    if (shared_bytes == 0) return;
    if (kThreadSanitizer || shared_capacity() > shared_reserved_) {
      free_shared();
      shared_reserved_ = shared_capacity();
      shared_ = static_cast<char*>(std::aligned_alloc(kGap, shared_reserved_ / kGap * kGap + kGap));
    }
    unpoison(shared_, shared_capacity());
    fill_unwritten(shared_, shared_capacity());
    poison(shared_, shared_capacity());
  }

  // For the race checker every thread of every block is a new thread on memory nobody had before;
  // otherwise stacks serve one thread after the other.
  void prepare_stacks() {
    free_stack_count_ = 0;
    if (!kThreadSanitizer) stacks_.reserve(thread_count_);
    for (int i = thread_count_ - 1; i >= 0; --i) {
      ThreadSlot& slot = slots_[i];
      slot.done = false;
      slot.waiting = nullptr;
      slot.copies.clear();
      slot.copy_group = 0;
      if (kThreadSanitizer) {
        slot.stack = static_cast<char*>(std::malloc(kStackBytes));
        slot.tsan_context = tsan_create();
      } else {
        free_stacks_[free_stack_count_++] = stacks_.bottom(i);
      }
    }
    main_tsan_ = tsan_current();
  }

  void clean_up() {
    if (!kThreadSanitizer) return;
    // After a fault threads are still in the middle of something: the checker keeps them.
    for (int i = 0; i < thread_count_ && fault_.empty(); ++i) {
      tsan_destroy(slots_[i].tsan_context);
      std::free(slots_[i].stack);
    }
    free_shared();
  }

  void free_shared() {
    if (shared_ == nullptr) return;
    unpoison(shared_, shared_reserved_);
    std::free(shared_);
    shared_ = nullptr;
    shared_reserved_ = 0;
  }

  // ---- threads ----

  ThreadSlot* start_next() {
    ThreadSlot& slot = slots_[next_to_start_++];
    if (!kThreadSanitizer) slot.stack = free_stacks_[--free_stack_count_];
    unpoison(slot.stack, kStackBytes);
    slot.context.start(slot.stack, &Block::entry);
    return &slot;
  }

  static void entry() {
    current()->arrive_on_new_stack();
    current()->run_threads();
  }

  // The first thread of all comes from the executor's own stack: where that is, ASan says.
  void arrive_on_new_stack() {
    Unobserved bookkeeping;
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    asan_finish_switch(nullptr, &bottom, &bytes);
    if (main_stack_bytes_ != 0) return;
    main_stack_ = bottom;
    main_stack_bytes_ = bytes;
  }

  // The life of a stack: one thread after another until the block needs none any more.
  [[noreturn]] void run_threads() {
    for (;;) {
      (*kernel_)();
      Unobserved bookkeeping;
      finish(*thread());
      if (ready_count_ > 0) leave_to(pop_ready());
      if (next_to_start_ == thread_count_) {
        if (alive_ > 0) report_stuck();
        leave_to(nullptr);
      }
      if (kThreadSanitizer) leave_to(start_next());
      ThreadSlot& next = slots_[next_to_start_++];
      next.stack = thread()->stack;
      thread() = &next;
    }
  }

  void finish(ThreadSlot& me) {
    me.done = true;
    --alive_;
    if (!me.copies.empty()) stop("a thread returned with asynchronous copies it never waited for");
    tsan_release(&end_token_);
    if (all_.barrier_only && all_.arrived > 0 && all_.arrived == alive_) open(all_, 0, thread_count_);
  }

  template <class Combine>
  void meet(Rendezvous& meeting, int expected, bool barrier_only, Place place, bool synchronises,
            void* operand, Combine&& combine) {
    Unobserved bookkeeping;
    ThreadSlot& me = *thread();
    me.operand = operand;
    me.place = place;
    if (meeting.arrived == 0) {
      meeting.place = place;
      meeting.barrier_only = barrier_only;
    } else if (!meeting.place.same_as(place)) {
      stop("divergent barrier: thread " + std::to_string(me.index) + " is in " + place.text() +
           " while others of its group wait in " + meeting.place.text());
    }
    char* token = &meeting.tokens[meeting.turn];
    if (synchronises) tsan_release(token);
    if (++meeting.arrived == expected) {
      combine();
      const int first = &meeting == &all_ ? 0 : me.index / kWarpSize * kWarpSize;
      open(meeting, first, first + (&meeting == &all_ ? thread_count_ : kWarpSize));
    } else {
      me.waiting = &meeting;
      suspend(me);
    }
    if (synchronises) tsan_acquire(token);
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

  void suspend(ThreadSlot& me) {
    if (ready_count_ > 0) {
      switch_to(&me, pop_ready());
    } else if (next_to_start_ < thread_count_) {
      switch_to(&me, start_next());
    } else {
      report_stuck();
    }
  }

  [[noreturn]] void report_stuck() {
    std::map<std::string, int> waiting;
    int returned = 0;
    for (int i = 0; i < thread_count_; ++i) {
      if (slots_[i].done) ++returned;
      if (slots_[i].waiting != nullptr) ++waiting[slots_[i].place.text()];
    }
    std::string text = "divergent barrier: of " + std::to_string(thread_count_) + " threads";
    for (const auto& [place, count] : waiting) {
      text += ", " + std::to_string(count) + " wait for ever in " + place;
    }
    stop(text + ", " + std::to_string(returned) + " have returned");
  }

  // `from` null: the executor's own stack. Comes back when somebody switches to `from` again.
  [[gnu::no_sanitize_thread, gnu::noinline]] void switch_to(ThreadSlot* from, ThreadSlot* to) {
    thread() = to;
    asan_start_switch(from ? &from->fake_stack : &main_fake_stack_, to->stack, kStackBytes);
    tsan_switch(to->tsan_context);
    Context::switch_stacks(from ? from->context : main_context_, to->context);
    asan_finish_switch(from ? from->fake_stack : main_fake_stack_, nullptr, nullptr);
  }

  // The calling thread is done with its stack. `to` null: back to the executor.
  [[noreturn, gnu::no_sanitize_thread, gnu::noinline]] void leave_to(ThreadSlot* to) {
    ThreadSlot& me = *thread();
    tsan_ignore(false);  // the caller's Unobserved will never end
    if (!kThreadSanitizer && me.done) free_stacks_[free_stack_count_++] = me.stack;
    thread() = to;
    if (to != nullptr) {
      asan_start_switch(nullptr, to->stack, kStackBytes);
      tsan_switch(to->tsan_context);
      Context::switch_stacks(me.context, to->context);
    } else {
      asan_start_switch(nullptr, main_stack_, main_stack_bytes_);
      tsan_switch(main_tsan_);
      Context::switch_stacks(me.context, main_context_);
    }
    std::abort();  // nobody switches to a thread that is done
  }

  const std::function<void()>* kernel_ = nullptr;
  Coordinates grid_{}, place_{};
  int thread_count_ = 0, alive_ = 0, next_to_start_ = 0;
  std::unique_ptr<ThreadSlot[]> slots_;
  ThreadSlot* ready_[kMaxBlockThreads];
  int ready_first_ = 0, ready_count_ = 0;
  Rendezvous all_;
  Rendezvous warps_[kMaxBlockThreads / kWarpSize];
  std::string fault_;

  StackMemory stacks_;
  char* free_stacks_[kMaxBlockThreads];
  int free_stack_count_ = 0;
  Context main_context_;
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
  void* main_tsan_ = nullptr;
  char end_token_ = 0;

  char* shared_ = nullptr;
  std::size_t shared_bytes_ = 0, shared_reserved_ = 0, shared_taken_ = 0;
};

}  // namespace llmc::host
