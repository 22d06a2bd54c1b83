#include "llmc/device/host/guard.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"
#include "llmc/device/math.h"

namespace llmc::host {

namespace {

constexpr int kMaxFrames = 16;

// An allocation of device or pinned memory. Bytes of 0: it is free, and a later one reuses this.
struct GuardedAllocation {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> bytes{0};
  std::atomic<bool> is_device{false};
  void* frames[kMaxFrames];  // of the call that allocated
  int num_frames = 0;
  GuardedAllocation* next = nullptr;

  bool contains(std::uintptr_t address) const {
    return address >= begin.load() && address - begin.load() < bytes.load();
  }
};

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// All allocations. A signal handler reads the list at any time, so it only grows.
class GuardedMemory {
 public:
  static GuardedMemory& instance() {
    static auto* const memory = new GuardedMemory;  // the handler may need it until the end
    return *memory;
  }

  void* allocate(std::size_t bytes) {
    // The page behind the last one is never accessible.
    const std::size_t mapped = round_up(bytes, page_bytes()) + page_bytes();
    void* const memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mprotect(memory, bytes, PROT_READ | PROT_WRITE);
    fill_uninitialised(memory, bytes);
    const std::lock_guard lock(mutex_);
    add(memory, bytes, true);
    if (num_open_ == 0) mprotect(memory, bytes, PROT_NONE);
    return memory;
  }
  void release(void* memory) {
    const std::lock_guard lock(mutex_);
    munmap(memory, round_up(remove(memory), page_bytes()) + page_bytes());
  }

  void add_pinned(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    add(memory, bytes, false);
  }
  void remove_pinned(const void* memory) {
    const std::lock_guard lock(mutex_);
    remove(memory);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (num_open_++ == 0) protect_all(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--num_open_ == 0) protect_all(PROT_NONE);
  }

  MemoryKind kind_of(const void* p, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    const GuardedAllocation* const at = find(address);
    if (at == nullptr) return MemoryKind::pageable;
    const std::size_t rest = at->begin + at->bytes - address;
    require(bytes <= rest, "a copy of " + std::to_string(bytes) + " bytes runs past the end of " +
                               (at->is_device ? "device" : "pinned") + " memory, after " +
                               std::to_string(rest) + " bytes");
    return at->is_device ? MemoryKind::device : MemoryKind::pinned;
  }

  // The allocation of an address, or null. Needs no lock.
  const GuardedAllocation* find(std::uintptr_t address) const {
    for (const GuardedAllocation* at = first_.load(); at != nullptr; at = at->next) {
      if (at->contains(address)) return at;
    }
    return nullptr;
  }

 private:
  GuardedMemory();

  void add(const void* memory, std::size_t bytes, bool is_device) {
    GuardedAllocation* at = first_.load();
    while (at != nullptr && at->bytes != 0) at = at->next;
    if (at == nullptr) {
      at = new GuardedAllocation;
      at->next = first_.load();
      first_ = at;
    }
    at->num_frames = backtrace(at->frames, kMaxFrames);
    at->begin = reinterpret_cast<std::uintptr_t>(memory);
    at->is_device = is_device;
    at->bytes = bytes;
  }
  // Returns the bytes of the allocation.
  std::size_t remove(const void* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    for (GuardedAllocation* at = first_.load(); at != nullptr; at = at->next) {
      if (at->begin == address && at->bytes != 0) return at->bytes.exchange(0);
    }
    fail("memory is freed that was not allocated");
  }

  void protect_all(int access) {
    for (const GuardedAllocation* at = first_.load(); at != nullptr; at = at->next) {
      if (at->bytes == 0 || !at->is_device) continue;
      mprotect(reinterpret_cast<void*>(at->begin.load()), at->bytes, access);
    }
  }

  std::mutex mutex_;
  int num_open_ = 0;
  std::atomic<GuardedAllocation*> first_{nullptr};
};

// "reads" or "writes", if the processor reports it.
const char* access_of([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr int kWrite = 2;  // bit of the error code of a page fault
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return registers[REG_ERR] & kWrite ? "writes" : "reads";
#else
  return "accesses";
#endif
}

struct sigaction& earlier_action() {
  static struct sigaction action;
  return action;
}

// Reports an access to device memory and ends the program. Leaves other faults to the earlier
// action. It allocates no memory, which the interrupted thread may be doing.
void report_device_access(int, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const GuardedAllocation* const at = GuardedMemory::instance().find(address);
  if (at == nullptr || !at->is_device) {
    sigaction(SIGSEGV, &earlier_action(), nullptr);  // the access is repeated, and fails again
    return;
  }
  char text[256];
  const int length = std::snprintf(
      text, sizeof text,
      "host code %s device memory at %p, byte %zu of the %zu bytes allocated as %p\naccess:\n",
      access_of(context), info->si_addr, static_cast<std::size_t>(address - at->begin),
      at->bytes.load(), reinterpret_cast<void*>(at->begin.load()));
  if (write(STDERR_FILENO, text, static_cast<std::size_t>(length)) < 0) _exit(1);
  void* frames[kMaxFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), STDERR_FILENO);
  constexpr char kAllocation[] = "allocation:\n";
  if (write(STDERR_FILENO, kAllocation, sizeof kAllocation - 1) < 0) _exit(1);
  backtrace_symbols_fd(at->frames, at->num_frames, STDERR_FILENO);
  _exit(1);
}

GuardedMemory::GuardedMemory() {
  struct sigaction action {};
  action.sa_sigaction = &report_device_access;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &earlier_action());
}

}  // namespace

bool is_guarded() {
  static const bool is_guarded = [] {
    const char* const value = std::getenv("LLMC_GUARD");
    const bool is_set = value != nullptr && std::string(value) == "1";
    require(!(is_set && kSanitized), "LLMC_GUARD=1 does not work in a build with a sanitizer",
            "use a build without SANITIZE");
    return is_set;
  }();
  return is_guarded;
}

void* allocate_guarded(std::size_t bytes) {
  return GuardedMemory::instance().allocate(bytes);
}
void release_guarded(void* memory) {
  GuardedMemory::instance().release(memory);
}
void add_pinned(const void* memory, std::size_t bytes) {
  GuardedMemory::instance().add_pinned(memory, bytes);
}
void remove_pinned(const void* memory) {
  GuardedMemory::instance().remove_pinned(memory);
}
MemoryKind kind_of(const void* p, std::size_t bytes) {
  return GuardedMemory::instance().kind_of(p, bytes);
}

OpenDeviceMemory::OpenDeviceMemory() {
  GuardedMemory::instance().open();
}
OpenDeviceMemory::~OpenDeviceMemory() {
  GuardedMemory::instance().close();
}

}  // namespace llmc::host
