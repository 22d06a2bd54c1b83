// Host memory through which the bytes of all disk stores of a rank pass, piece by piece, and the
// threads that move pieces between it and the disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>

#include "llmc/base/io_threads.h"
#include "llmc/base/scratch_file.h"
#include "llmc/device/device.h"

namespace llmc {

struct DiskPiece {
  PinnedBuffer<std::byte> memory;
  std::future<void> transfer;  // to or from the disk
  Event copied;                // to or from the device

  // The part that direct transfers can use: DiskPieces::kBytes bytes.
  std::byte* aligned() const {
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    return memory.data() + (round_up(address, ScratchFile::kAlignment) - address);
  }
};

class DiskPieces {
 public:
  static constexpr std::int64_t kBytes = std::int64_t{4} << 20;  // of a piece
  static constexpr std::size_t kCount = 4;
  static constexpr std::int64_t kMemory = kCount * (kBytes + ScratchFile::kAlignment);

  DiskPieces() : threads_(kCount) {
    for (DiskPiece& piece : pieces_) {
      piece.memory = PinnedBuffer<std::byte>(kBytes + ScratchFile::kAlignment);
    }
  }

  DiskPiece& piece(std::int64_t index) { return pieces_[static_cast<std::size_t>(index) % kCount]; }
  IoThreads& threads() { return threads_; }
  // Waits for all transfers, after one has failed: its file may be closed then.
  void settle() {
    for (DiskPiece& piece : pieces_) {
      if (piece.transfer.valid()) piece.transfer.wait();
    }
  }

 private:
  std::array<DiskPiece, kCount> pieces_;
  IoThreads threads_;  // last: its work uses the pieces
};

}  // namespace llmc
