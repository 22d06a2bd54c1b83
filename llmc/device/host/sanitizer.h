// Interface of the host executor to the sanitizers. In an ordinary build all functions are empty.
//
// AddressSanitizer (ASan) must know when the stack changes and which bytes are out of bounds.
// ThreadSanitizer (TSan) must treat each CUDA thread as a separate thread, ordered with others only
// by what CUDA orders. Therefore every context is a TSan fiber, and switching contexts does not
// synchronise.
#pragma once

#include <cstddef>

// g++ defines a macro per sanitizer, clang a feature.
#if defined(__SANITIZE_ADDRESS__)
#define LLMC_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__)
#define LLMC_THREAD_SANITIZER
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LLMC_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define LLMC_THREAD_SANITIZER
#endif
#endif

#if defined(LLMC_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif
#if defined(LLMC_ADDRESS_SANITIZER) || defined(LLMC_THREAD_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LLMC_THREAD_SANITIZER)
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace llmc::host {

#if defined(LLMC_ADDRESS_SANITIZER)
inline constexpr bool kAddressSanitizer = true;
inline void poison(const void* p, std::size_t bytes) {
  __asan_poison_memory_region(p, bytes);
}
inline void unpoison(const void* p, std::size_t bytes) {
  __asan_unpoison_memory_region(p, bytes);
}
inline void asan_start_switch(void** fake_stack, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}
inline void asan_finish_switch(void* fake_stack, const void** old_bottom, std::size_t* old_bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, old_bottom, old_bytes);
}
#else
inline constexpr bool kAddressSanitizer = false;
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
inline void asan_start_switch(void**, const void*, std::size_t) {}
inline void asan_finish_switch(void*, const void**, std::size_t*) {}
#endif

#if defined(LLMC_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizer = true;
inline void* tsan_current() {
  return __tsan_get_current_fiber();
}
inline void* tsan_create() {
  return __tsan_create_fiber(0);
}
inline void tsan_destroy(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
inline void tsan_set_name(void* fiber, const char* name) {
  __tsan_set_fiber_name(fiber, name);
}
// Neither this function nor its caller may be instrumented: TSan's shadow call stack belongs to one
// context on entry and to another on exit.
[[gnu::no_sanitize_thread, gnu::always_inline]] inline void tsan_switch(void* fiber) {
  constexpr unsigned kNoSynchronisation = 1;
  __tsan_switch_to_fiber(fiber, kNoSynchronisation);
}
inline void tsan_acquire(void* token) {
  __tsan_acquire(token);
}
inline void tsan_release(void* token) {
  __tsan_release(token);
}
inline void tsan_reads(const void* p, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(p), bytes);
}
inline void tsan_writes(void* p, std::size_t bytes) {
  __tsan_write_range(p, bytes);
}
inline void tsan_ignore(bool begin) {
  if (begin) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
}
#else
inline constexpr bool kThreadSanitizer = false;
inline void* tsan_current() {
  return nullptr;
}
inline void* tsan_create() {
  return nullptr;
}
inline void tsan_destroy(void*) {}
inline void tsan_set_name(void*, const char*) {}
inline void tsan_switch(void*) {}
inline void tsan_acquire(void*) {}
inline void tsan_release(void*) {}
inline void tsan_reads(const void*, std::size_t) {}
inline void tsan_writes(void*, std::size_t) {}
inline void tsan_ignore(bool) {}
#endif

// Makes ASan report here if the first or last byte is out of bounds or poisoned.
inline void check_readable(const void* p, std::size_t bytes) {
  if (!kAddressSanitizer) return;
  const auto* byte = static_cast<const volatile char*>(p);
  static_cast<void>(byte[0]);
  static_cast<void>(byte[bytes - 1]);
}

// During its lifetime TSan ignores memory accesses: they are the executor's bookkeeping, not the
// kernel's. Memory allocated or freed in this time loses its access history in TSan.
class TsanIgnoreScope {
 public:
  [[gnu::no_sanitize_thread]] TsanIgnoreScope() {
    if (kThreadSanitizer && depth()++ == 0) tsan_ignore(true);
  }
  [[gnu::no_sanitize_thread]] ~TsanIgnoreScope() {
    if (kThreadSanitizer && --depth() == 0) tsan_ignore(false);
  }
  TsanIgnoreScope(const TsanIgnoreScope&) = delete;
  TsanIgnoreScope& operator=(const TsanIgnoreScope&) = delete;

  // Number of live objects on the current stack. Fiber::switch_to saves and restores it.
  [[gnu::no_sanitize_thread]] static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }
};

// Inside a TsanIgnoreScope, makes TSan check accesses again, because they are the kernel's.
class TsanCheckScope {
 public:
  [[gnu::no_sanitize_thread]] TsanCheckScope() {
    if (kThreadSanitizer && TsanIgnoreScope::depth() > 0) tsan_ignore(false);
  }
  [[gnu::no_sanitize_thread]] ~TsanCheckScope() {
    if (kThreadSanitizer && TsanIgnoreScope::depth() > 0) tsan_ignore(true);
  }
  TsanCheckScope(const TsanCheckScope&) = delete;
  TsanCheckScope& operator=(const TsanCheckScope&) = delete;
};

// A TSan context that runs nothing: it passes on what it has acquired, while its caller stays
// unordered with that.
class TsanContext {
 public:
  TsanContext() : context_(tsan_create()) {}
  ~TsanContext() {
    if (kThreadSanitizer) tsan_destroy(context_);
  }
  TsanContext(const TsanContext&) = delete;
  TsanContext& operator=(const TsanContext&) = delete;

  [[gnu::no_sanitize_thread, gnu::noinline]] void acquire(void* token) {
    void* const caller = tsan_current();
    tsan_switch(context_);
    tsan_acquire(token);
    tsan_switch(caller);
  }
  [[gnu::no_sanitize_thread, gnu::noinline]] void release(void* token) {
    void* const caller = tsan_current();
    tsan_switch(context_);
    tsan_release(token);
    tsan_switch(caller);
  }

 private:
  void* context_;
};

inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

// With files and lines, which a trace of the operating system lacks.
inline void sanitizer_print_stack_trace() {
#if defined(LLMC_ADDRESS_SANITIZER) || defined(LLMC_THREAD_SANITIZER)
  __sanitizer_print_stack_trace();
#endif
}

}  // namespace llmc::host
