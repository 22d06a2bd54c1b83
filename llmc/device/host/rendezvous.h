// Meeting points of the threads of a warp or a block, and the call sites that errors report for
// them.
#pragma once

#include <cstddef>
#include <cstring>
#include <source_location>
#include <string>

namespace llmc::host {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxBlockThreads = 1024;

using SourceLocation = std::source_location;

// A call of a device function, such as block_barrier, in a kernel: its name and the line of the
// call.
struct CallSite {
  const char* function = "";
  SourceLocation location;

  bool same_as(const CallSite& other) const {
    if (std::memcmp(this, &other, sizeof *this) == 0) return true;  // the usual case
    return location.line() == other.location.line() && std::strcmp(function, other.function) == 0 &&
           std::strcmp(location.file_name(), other.location.file_name()) == 0;
  }
  std::string text() const {
    return std::string(function) + " at " + location.file_name() + ":" +
           std::to_string(location.line());
  }
};

// Meeting point of threads: one per warp and one per block.
struct Rendezvous {
  int arrived = 0;
  bool barrier_only = false;  // no values are exchanged; does not wait for returned threads
  // Number of meetings modulo 2: index of the buffer, and of the TSan token, in use.
  int parity = 0;
  const CallSite* site = nullptr;  // call of the first thread to arrive, which waits in it
  // Memory for the exchanged values. Two buffers alternate: a fast thread may write its value for
  // the next meeting while a slow one still reads those of this one. No thread reaches the meeting
  // after the next before all have left this one.
  static constexpr std::size_t kBufferBytes = kMaxBlockThreads * sizeof(float) + 64;
  alignas(64) std::byte buffers[2][kBufferBytes];
};

}  // namespace llmc::host
