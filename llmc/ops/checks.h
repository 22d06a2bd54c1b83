// Checks of launchers in addition to shapes.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/device/device.h"

namespace llmc {

// Ops read rows in vectors of 16 bytes, which hold at most 8 elements, so every row must start at a
// multiple of 8 elements.
inline void require_vector_rows(const char* op, std::int64_t row_length) {
  if (row_length > 0 && row_length % 8 == 0) return;
  fail(std::string(op) + ": rows of " + std::to_string(row_length) + " elements",
       "use a row length that is a multiple of 8");
}

// `floats` is the result of NAME_scratch(sizes...).
inline void require_scratch(const char* op, const Tensor<float, 1>& scratch, std::int64_t floats) {
  if (scratch.size() >= floats) return;
  fail(std::string(op) + ": scratch holds " + std::to_string(scratch.size()) + " floats, " +
       std::to_string(floats) + " are needed");
}

}  // namespace llmc
