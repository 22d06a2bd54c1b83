#include "llmc/io/checkpoint/element_check.h"

namespace llmc {

std::string element_text(const Shape& shape, std::int64_t index) {
  std::string text;
  for (std::size_t axis = shape.size(); axis-- > 0; index /= shape[axis]) {
    text = std::to_string(index % shape[axis]) + (text.empty() ? "" : ", ") + text;
  }
  return "[" + text + "]";
}

}  // namespace llmc
