// Switching between call stacks. On x86-64 by hand (about 10 ns: six registers and the stack
// pointer); elsewhere through ucontext (about 200 ns: it saves the signal mask too).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "llmc/device/error.h"
#include "llmc/device/host/sanitizer.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace llmc::host {

// A kernel's frames are small; the sanitizers' red zones and their reporting need more.
inline constexpr std::size_t kStackBytes = (kAddressSanitizer ? 256 : kThreadSanitizer ? 64 : 64) * 1024;

// Memory of many stacks, each with an inaccessible page below it, so that an overflow stops the
// program instead of writing into a neighbour. Pages that nothing touches cost nothing.
class StackMemory {
 public:
  StackMemory() = default;
  StackMemory(const StackMemory&) = delete;
  StackMemory& operator=(const StackMemory&) = delete;
  ~StackMemory() { release(); }

  void reserve(int count) {
    if (count <= count_) return;
    release();
    void* memory = mmap(nullptr, slot() * count, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the stacks of " + std::to_string(count) + " threads");
    base_ = static_cast<char*>(memory);
    count_ = count;
    for (int i = 0; i < count; ++i) mprotect(base_ + slot() * i, guard(), PROT_NONE);
  }

  char* bottom(int index) const { return base_ + slot() * index + guard(); }

 private:
  static std::size_t guard() {
    static const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return page;
  }
  static std::size_t slot() { return kStackBytes + guard(); }
  void release() {
    if (base_ != nullptr) munmap(base_, slot() * count_);
    base_ = nullptr;
    count_ = 0;
  }

  char* base_ = nullptr;
  int count_ = 0;
};

#if defined(__x86_64__)

extern "C" void llmc_switch_stack(void** save, void* load);
// Saves what a call must preserve on this stack, then continues on the other. Weak: every
// translation unit brings the same copy.
asm(R"(
  .text
  .weak llmc_switch_stack
  .type llmc_switch_stack,@function
llmc_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size llmc_switch_stack,.-llmc_switch_stack
)");

// A suspended flow of control: where its stack ended.
class Context {
 public:
  // The next switch to this context calls entry() on the given stack; entry never returns.
  void start(char* stack_bottom, void (*entry)()) {
    auto* top = reinterpret_cast<void**>(stack_bottom + kStackBytes);
    *--top = nullptr;  // a return address that is never used, and 16-byte alignment at entry
    *--top = reinterpret_cast<void*>(entry);
    constexpr int kSavedRegisters = 6;
    for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
    stack_pointer_ = top;
  }

  [[gnu::no_sanitize_thread, gnu::always_inline]] static void switch_stacks(Context& from,
                                                                           Context& to) {
    llmc_switch_stack(&from.stack_pointer_, to.stack_pointer_);
  }

 private:
  void* stack_pointer_ = nullptr;
};

#else

class Context {
 public:
  void start(char* stack_bottom, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_bottom;
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  [[gnu::no_sanitize_thread, gnu::always_inline]] static void switch_stacks(Context& from,
                                                                           Context& to) {
    swapcontext(&from.context_, &to.context_);
  }

 private:
  ucontext_t context_;
};

#endif

}  // namespace llmc::host
