// Meeting points of the threads of a warp or a block, and the places that errors report for them.
#pragma once

#include <cstddef>
#include <cstring>
#include <source_location>
#include <string>

namespace llmc::host {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxBlockThreads = 1024;

using Where = std::source_location;

// Position of a thread in a kernel: the device function it is in (such as block_barrier) and the
// line that calls it.
struct Place {
  const char* what = "";
  Where where;

  bool same_as(const Place& other) const {
    if (std::memcmp(this, &other, sizeof *this) == 0) return true;  // the usual case
    return where.line() == other.where.line() && std::strcmp(what, other.what) == 0 &&
           std::strcmp(where.file_name(), other.where.file_name()) == 0;
  }
  std::string text() const {
    return std::string(what) + " at " + where.file_name() + ":" + std::to_string(where.line());
  }
};

// Meeting point of threads: one per warp and one per block.
struct Rendezvous {
  int arrived = 0;
  bool barrier_only = false;  // no values are exchanged; does not wait for returned threads
  // Number of meetings modulo 2: index of the room, and of the TSan token, in use.
  int turn = 0;
  const Place* place = nullptr;  // place of the first thread to arrive; it waits meanwhile
  // Memory for the exchanged values. Two rooms alternate: a fast thread may write its value for the
  // next meeting while a slow one still reads those of this one. No thread reaches the meeting
  // after the next before all have left this one.
  static constexpr std::size_t kRoomBytes = kMaxBlockThreads * sizeof(float) + 64;
  alignas(64) std::byte rooms[2][kRoomBytes];
};

}  // namespace llmc::host
