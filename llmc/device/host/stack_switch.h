// Switching between call stacks. On x86-64 by hand (about 10 ns: six registers and the stack
// pointer); elsewhere, or with LLMC_USE_UCONTEXT, through ucontext (about 200 ns: it saves the
// signal mask too).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/host/sanitizer.h"
#if !defined(__x86_64__) || defined(LLMC_USE_UCONTEXT)
#define LLMC_UCONTEXT
#include <ucontext.h>
#endif

namespace llmc::host {

// A kernel's frames are small; the sanitizers' red zones and their reports need more. Pages that
// nothing touches cost nothing.
inline constexpr std::size_t kStackBytes = (kSanitized ? 256 : 64) * 1024;

// Memory for one call stack, with an inaccessible page below it: an overflow stops the program
// instead of writing into a neighbour.
class Stack {
 public:
  Stack() = default;
  explicit Stack(std::size_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes + page(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for the stack of a thread");
    mprotect(memory, page(), PROT_NONE);
    bottom_ = static_cast<char*>(memory) + page();
  }
  Stack(Stack&& other) noexcept
      : bottom_(std::exchange(other.bottom_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Stack& operator=(Stack&&) = delete;
  ~Stack() {
    if (bottom_ == nullptr) return;
    unpoison(bottom_, bytes_);  // frames that were left behind in the middle
    munmap(bottom_ - page(), bytes_ + page());
  }

  char* bottom() const { return bottom_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static std::size_t page() {
    static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
  }

  char* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

#if !defined(LLMC_UCONTEXT)

extern "C" void llmc_switch_stack(void** save, void* load);
// Saves what a call must preserve on this stack, then continues on the other. By a return, not a
// jump: threads of a block mostly switch at the same line, so that the processor's guess of where a
// return leads is right, and calls and returns must stay balanced for that. Weak: every translation
// unit brings the same copy.
asm(R"(
  .text
  .weak llmc_switch_stack
  .type llmc_switch_stack,@function
  .p2align 4
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
  // The next switch to this context calls entry() on the stack that ends at `top` (a multiple of
  // 16) and has `bytes` below; entry never returns.
  void start(char* top, std::size_t, void (*entry)()) {
    auto* words = reinterpret_cast<void**>(top);
    *--words = nullptr;  // in place of a return address, which also aligns the stack for entry
    *--words = reinterpret_cast<void*>(entry);
    constexpr int kSavedRegisters = 6;
    for (int i = 0; i < kSavedRegisters; ++i) *--words = nullptr;
    stack_pointer_ = words;
  }

  [[gnu::no_sanitize_thread, gnu::always_inline]] static inline void switch_stacks(Context& from,
                                                                                   Context& to) {
    llmc_switch_stack(&from.stack_pointer_, to.stack_pointer_);
  }

 private:
  void* stack_pointer_ = nullptr;
};

#else

class Context {
 public:
  void start(char* top, std::size_t bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = top - bytes;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  [[gnu::no_sanitize_thread, gnu::always_inline]] static inline void switch_stacks(Context& from,
                                                                                   Context& to) {
    swapcontext(&from.context_, &to.context_);
  }

 private:
  ucontext_t context_;
};

#endif

}  // namespace llmc::host
