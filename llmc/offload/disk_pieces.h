// Host memory through which the bytes of all disk stores of a rank pass, piece by piece, and the
// threads that move pieces between it and the disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "llmc/base/io_queue.h"
#include "llmc/base/scratch_file.h"
#include "llmc/device/device.h"

namespace llmc {

struct DiskPiece {
  PinnedBuffer<std::byte> memory;
  IoQueue::Ticket transfer = 0;  // to or from the disk
  Event copied;                  // to or from the device

  // The part that direct transfers can use: DiskPieces::kBytes bytes.
  std::byte* aligned() const {
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    return memory.data() + (round_up(address, ScratchFile::kAlignment) - address);
  }
};

class DiskPieces {
 public:
  static constexpr std::int64_t kBytes = IoQueue::kChunk;  // of a piece
  static constexpr std::size_t kCount = IoQueue::kThreads;
  static constexpr std::int64_t kMemory = kCount * (kBytes + ScratchFile::kAlignment);

  DiskPieces() {
    for (DiskPiece& piece : pieces_) {
      piece.memory = PinnedBuffer<std::byte>(kBytes + ScratchFile::kAlignment);
    }
  }

  DiskPiece& piece(std::int64_t index) { return pieces_[static_cast<std::size_t>(index) % kCount]; }
  IoQueue& queue() { return queue_; }

 private:
  std::array<DiskPiece, kCount> pieces_;
  IoQueue queue_;  // last: its transfers use the pieces
};

}  // namespace llmc
