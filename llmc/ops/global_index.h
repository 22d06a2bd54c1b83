// Maps the elements of one rank's part of a tensor to the whole tensor.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/target.h"

namespace llmc {

// Maps the index of an element in one rank's tensor to its index in the whole tensor. That index is
// the key of random numbers and the position in files. No other code computes it.
struct GlobalIndex {
  std::int64_t begin = 0;  // index in the whole tensor of the rank's element 0
  // The rank's tensor has rows of row_size elements. A row consists of pieces of `piece` contiguous
  // elements. In c_attn, for example, the pieces are the rank's heads of q, of k and of v. If
  // row_size is 0, the rank's elements are contiguous in the whole tensor.
  std::int64_t row_size = 0;
  std::int64_t piece = 0;            // divides row_size
  std::int64_t global_row_size = 0;  // elements between two row starts in the whole tensor
  std::int64_t global_piece = 0;     // elements between two piece starts in the whole tensor

  __host__ __device__ std::int64_t operator()(std::int64_t i) const {
    if (row_size == 0) return begin + i;
    return begin + i / row_size * global_row_size + i % row_size / piece * global_piece + i % piece;
  }

  // One draw of Philox serves the group of elements 4 * g to 4 * g + 3 of the whole tensor. Throws
  // unless the rank's elements first + 4 * k to first + 4 * k + 3 are such a group for every k.
  void require_groups(const char* op, std::int64_t first) const {
    const auto require_multiple = [op](const char* what, std::int64_t value) {
      if (value % 4 == 0) return;
      fail(std::string(op) + ": " + what + " is " + std::to_string(value) +
           ", which is not a multiple of 4");
    };
    if (row_size == 0) {
      require_multiple("the first element's index in the whole tensor", begin + first);
      return;
    }
    require_multiple("the first element's index in the rank's tensor", first);
    require_multiple("the index in the whole tensor of the rank's element 0", begin);
    require_multiple("the rank's row size", row_size);
    require_multiple("the size of a piece", piece);
    require_multiple("the row size of the whole tensor", global_row_size);
    require_multiple("the distance of two pieces in the whole tensor", global_piece);
    require(piece > 0 && row_size % piece == 0,
            std::string(op) + ": pieces of " + std::to_string(piece) +
                " elements do not divide a row of " + std::to_string(row_size));
  }

  bool operator==(const GlobalIndex&) const = default;
};

}  // namespace llmc
