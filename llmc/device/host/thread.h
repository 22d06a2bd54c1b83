// Position of a kernel's thread in its block and the grid, on the host.
#pragma once

#include <cstdint>

#include "llmc/device/host/block.h"

namespace llmc {

inline int thread_index() {
  return host::Block::thread()->index;
}
inline int block_size() {
  return host::Block::current()->threads();
}
inline std::int64_t block_x() {
  return host::Block::current()->coordinates().x;
}
inline std::int64_t block_y() {
  return host::Block::current()->coordinates().y;
}
inline std::int64_t block_z() {
  return host::Block::current()->coordinates().z;
}
inline std::int64_t grid_x() {
  return host::Block::current()->grid().x;
}
inline std::int64_t grid_y() {
  return host::Block::current()->grid().y;
}
inline std::int64_t grid_z() {
  return host::Block::current()->grid().z;
}

}  // namespace llmc
