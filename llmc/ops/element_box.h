// Maps the elements of a part of a matrix to indices in one rank's memory and in the whole tensor.
#pragma once

#include <cstdint>

#include "llmc/device/target.h"

namespace llmc {

// A (rows, columns) box of a tensor that may be sharded over ranks. An element's row and column in
// the box give its index in the rank's array (local) and in the whole tensor (global). The global
// index is the key of random numbers and the position of slices in files. No other code computes
// it.
struct ElementBox {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t local_begin = 0;    // index of element (0, 0) in the rank's array
  std::int64_t local_stride = 0;   // elements between two row starts in the rank's array
  std::int64_t global_begin = 0;   // index of element (0, 0) in the whole tensor
  std::int64_t global_stride = 0;  // elements between two row starts in the whole tensor

  __host__ __device__ std::int64_t size() const { return rows * columns; }
  __host__ __device__ std::int64_t local_index(std::int64_t row, std::int64_t column) const {
    return local_begin + row * local_stride + column;
  }
  __host__ __device__ std::int64_t global_index(std::int64_t row, std::int64_t column) const {
    return global_begin + row * global_stride + column;
  }
  // True if the elements, in row order, are contiguous in the rank's array and in the tensor.
  bool is_contiguous() const {
    return rows == 1 || (columns == local_stride && columns == global_stride);
  }

  bool operator==(const ElementBox&) const = default;
};

}  // namespace llmc
