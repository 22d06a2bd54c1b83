// The memory behind a block's shared memory.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"

namespace llmc::host {

// All of it is poisoned but the pieces that were taken, so that a poisoned gap follows each.
class SharedArena {
 public:
  static constexpr std::size_t kGap = 128;
  static constexpr std::size_t kMaxPieces = 64;

  SharedArena() = default;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() { release(); }

  // `bytes`: what the launch asked for. Every piece may need rounding up and has a gap after it.
  void start_block(std::size_t bytes) {
    taken_ = 0;
    capacity_ = bytes == 0 ? 0 : (bytes + kGap - 1) / kGap * kGap + 2 * kGap * kMaxPieces;
    if (capacity_ > reserved_) {
      release();
      memory_ = static_cast<char*>(std::aligned_alloc(kGap, capacity_));
      reserved_ = capacity_;
    }
    poison(memory_, capacity_);
  }

  // For the race checker memory that is freed and allocated again is memory nobody ever touched:
  // what each block gets.
  void end_block() {
    if (kThreadSanitizer) release();
  }

  // The piece at an offset that counts the gaps before it; null when there are too many.
  char* piece(std::size_t offset, std::size_t bytes) {
    if (offset + bytes > capacity_) return nullptr;
    char* const piece = memory_ + offset;
    // Once for the block: the piece may hold values, or copies under way, when others take it.
    if (offset >= taken_) {
      taken_ = offset + bytes;
      unpoison(piece, bytes);
      fill_unwritten(piece, bytes);
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
  std::size_t reserved_ = 0, capacity_ = 0, taken_ = 0;
};

}  // namespace llmc::host
