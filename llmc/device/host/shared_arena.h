// Host memory that backs a block's shared memory.
#pragma once

#include <cstddef>

namespace llmc {

namespace host {

// All bytes are poisoned except the taken pieces, so a poisoned gap follows each piece.
class SharedArena {
 public:
  static constexpr std::size_t kGap = 128;
  static constexpr std::size_t kMaxPieces = 64;

  SharedArena() = default;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() { release(); }

  // `bytes` is the launch's shared memory. The capacity suffices for kMaxPieces pieces, each
  // rounded up and followed by a gap.
  void start_block(std::size_t bytes);

  // TSan forgets accesses to memory that is freed and allocated again: each block starts with
  // memory that no other block has accessed.
  void end_block();

  // Returns the piece at `offset`, which counts the gaps before it; null if it does not fit.
  char* piece(std::size_t offset, std::size_t bytes);

 private:
  void release();

  char* memory_ = nullptr;
  std::size_t reserved_ = 0, capacity_ = 0, taken_bytes_ = 0;
};

}  // namespace host

}  // namespace llmc
