#include "llmc/base/lines.h"

#include <algorithm>

namespace llmc {

bool Lines::next() {
  if (end_ >= text_.size()) return false;
  const std::size_t begin = end_;
  const std::size_t length = std::min(text_.find('\n', begin), text_.size()) - begin;
  line_ = text_.substr(begin, length);
  end_ = std::min(begin + length + 1, text_.size());
  ++number_;
  return true;
}

bool Lines::next_filled() {
  while (next()) {
    if (line_.find_first_not_of(" \t\r") != line_.npos) return true;
  }
  return false;
}

}  // namespace llmc
