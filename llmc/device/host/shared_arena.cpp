#include "llmc/device/host/shared_arena.h"

#include <cstdlib>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"

namespace llmc {

namespace host {

void SharedArena::start_block(std::size_t bytes) {
  taken_bytes_ = 0;
  capacity_ = bytes == 0 ? 0 : (bytes + kGap - 1) / kGap * kGap + 2 * kGap * kMaxPieces;
  if (capacity_ > reserved_) {
    release();
    memory_ = static_cast<char*>(std::aligned_alloc(kGap, capacity_));
    reserved_ = capacity_;
  }
  poison(memory_, capacity_);
}

void SharedArena::end_block() {
  if (kThreadSanitizer) release();
}

char* SharedArena::piece(std::size_t offset, std::size_t bytes) {
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

void SharedArena::release() {
  if (memory_ == nullptr) return;
  unpoison(memory_, reserved_);
  std::free(memory_);
  memory_ = nullptr;
  reserved_ = 0;
}

}  // namespace host

}  // namespace llmc
