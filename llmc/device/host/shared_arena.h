// Host memory that backs a block's shared memory.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"

namespace llmc::host {

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
  void start_block(std::size_t bytes) {
    taken_bytes_ = 0;
    capacity_ = bytes == 0 ? 0 : (bytes + kGap - 1) / kGap * kGap + 2 * kGap * kMaxPieces;
    if (capacity_ > reserved_) {
      release();
      memory_ = static_cast<char*>(std::aligned_alloc(kGap, capacity_));
      reserved_ = capacity_;
    }
    poison(memory_, capacity_);
  }

  // TSan forgets accesses to memory that is freed and allocated again: each block starts with
  // memory that no other block has accessed.
  void end_block() {
    if (kThreadSanitizer) release();
  }

  // Returns the piece at `offset`, which counts the gaps before it; null if it does not fit.
  char* piece(std::size_t offset, std::size_t bytes) {
    if (offset + bytes > capacity_) return nullptr;
    char* const piece = memory_ + offset;
    // Only once per block: when other threads take the piece, it may hold values or pending copies.
    if (offset >= taken_bytes_) {
      taken_bytes_ = offset + bytes;
      unpoison(piece, bytes);
      fill_uninitialised(piece, bytes);
    }
    return piece;
  }

 private:
  void release() {
    if (memory_ == nullptr) return;
    unpoison(memory_, reserved_);
    std::free(memory_);
    memory_ = nullptr;
    reserved_ = 0;
  }

  char* memory_ = nullptr;
  std::size_t reserved_ = 0, capacity_ = 0, taken_bytes_ = 0;
};

}  // namespace llmc::host
