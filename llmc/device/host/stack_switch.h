// Switches between call stacks. x86-64 uses assembly (about 10 ns: six registers and the stack
// pointer). Other machines, and builds with LLMC_USE_UCONTEXT, use ucontext (about 200 ns: it also
// saves the signal mask).
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

// Stack size of a kernel's thread. A kernel's frames are small; the sanitizers' red zones and
// reports need more. Untouched pages cost nothing.
inline constexpr std::size_t kStackBytes = (kSanitized ? 256 : 64) * 1024;

// Memory of one call stack, with an inaccessible page below it: an overflow stops the program
// instead of writing into a neighbouring stack.
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
    unpoison(bottom_, bytes_);  // abandoned frames may still be poisoned
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
// Saves the callee-saved registers on this stack, then continues on the other one. It ends with a
// return, not a jump: the processor's return prediction needs balanced calls and returns. The
// prediction is right because threads of a block mostly switch at the same line. The symbol is weak
// because every translation unit contains a copy.
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

// A suspended control flow: the stack pointer at which it continues.
class Context {
 public:
  // The next switch to this context calls entry() on the stack that ends at `top` (a multiple of
  // 16). entry never returns. The unnamed parameter is the stack's size, which only ucontext needs.
  void start(char* top, std::size_t, void (*entry)()) {
    auto* words = reinterpret_cast<void**>(top);
    *--words = nullptr;  // dummy return address; it also aligns the stack for entry
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
