// Where the threads of a warp or a block meet, and how errors name that place.
#pragma once

#include <cstddef>
#include <cstring>
#include <source_location>
#include <string>

namespace llmc::host {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxBlockThreads = 1024;

using Where = std::source_location;

// Where in the kernel a thread is: in which function of the vocabulary, called from which line.
struct Place {
  const char* what = "";
  Where where;

  bool same_as(const Place& other) const {
    if (std::memcmp(this, &other, sizeof *this) == 0) return true;  // nearly always
    return where.line() == other.where.line() && std::strcmp(what, other.what) == 0 &&
           std::strcmp(where.file_name(), other.where.file_name()) == 0;
  }
  std::string text() const {
    return std::string(what) + " at " + where.file_name() + ":" + std::to_string(where.line());
  }
};

// Where threads meet: one for each warp, one for the block.
struct Rendezvous {
  int arrived = 0;
  bool barrier_only = false;  // nothing is exchanged: threads that have returned are not missed
  // Counts meetings modulo 2: which room, and which token of the race checker, is in use.
  int turn = 0;
  const Place* place = nullptr;  // of the first to arrive, who waits meanwhile
  // Where those who meet leave values for each other. Two, used in turn: a fast thread may leave
  // its value for the next meeting while a slow one still reads those of this one, but no thread
  // gets to the meeting after the next before all have left this one.
  static constexpr std::size_t kRoomBytes = kMaxBlockThreads * sizeof(float) + 64;
  alignas(64) std::byte rooms[2][kRoomBytes];
};

}  // namespace llmc::host
