// State of one thread of a block, and the parameters of a launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/device/host/fiber.h"
#include "llmc/device/host/rendezvous.h"

namespace llmc::host {

// A requested cp.async copy, executed at the wait.
struct PendingCopy {
  char* destination;
  const char* source;
  bool valid;
  int group;
  SourceLocation location;
};

struct ThreadSlot {
  int index = 0;
  bool done = false;
  Fiber* fiber = nullptr;
  Rendezvous* waiting = nullptr;
  const CallSite* site = nullptr;  // latest collective; valid while the thread is in it
  int copy_group = 0;
  std::vector<PendingCopy> copies;
};

struct Coordinates {
  std::int64_t x, y, z;
};

// A kernel with its arguments: call(closure) runs it for the calling thread.
struct KernelCall {
  void (*call)(const void* closure);
  const void* closure;
};

// Parameters that all blocks of a launch share.
struct Launch {
  KernelCall kernel{};
  Coordinates grid{};
  int threads = 0;
  std::size_t shared_bytes = 0;
  bool overlapped = false;  // it may start before the previous launch has ended
};

}  // namespace llmc::host
