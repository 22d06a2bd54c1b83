// Maps the index of an element in one rank's tensor to its index in the whole tensor.
#pragma once

#include <cstdint>

#include "llmc/device/target.h"

namespace llmc {

struct GlobalIndex {
  std::int64_t begin = 0;
  std::int64_t row_size = 0, piece = 0;
  std::int64_t global_row_size = 0;
  std::int64_t global_piece = 0;

  __host__ __device__ std::int64_t operator()(std::int64_t i) const {
    if (row_size == 0) return begin + i;
    return begin + i / row_size * global_row_size + i % row_size / piece * global_piece + i % piece;
  }
  bool operator==(const GlobalIndex&) const = default;
};

}  // namespace llmc
