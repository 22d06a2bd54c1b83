// Shared memory of the host: pieces of the block's arena, with a poisoned gap after each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/device/host/block.h"
#include "llmc/device/shared_layout.h"

namespace llmc {

class SharedMemory {
 public:
  template <class T>
  T* take(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* piece = host::Block::current()->shared_piece(offset_, padded_offset_, bytes);
    const std::size_t rounded =
        (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    offset_ += rounded;
    padded_offset_ += rounded + kSharedAlignment;
    return static_cast<T*>(piece);
  }

 private:
  std::size_t offset_ = 0, padded_offset_ = 0;
};

}  // namespace llmc
