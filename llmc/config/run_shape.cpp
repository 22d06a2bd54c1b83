#include "llmc/config/run_shape.h"

#include <algorithm>

namespace llmc {

std::int64_t RunShape::chunk_rows() const {
  return logits_rows == 0 ? rows() : std::min(rows(), logits_rows);
}

}  // namespace llmc
