// The lines of a text, one after another, with their numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmc {

class Lines {
 public:
  // The text must outlive this.
  explicit Lines(std::string_view text) : text_(text) {}

  // Advances to the next line; returns false if there is none. A line break ends a line, so no
  // empty line follows the last line break.
  bool next() {
    if (end_ >= text_.size()) return false;
    const std::size_t begin = end_;
    const std::size_t length = std::min(text_.find('\n', begin), text_.size()) - begin;
    line_ = text_.substr(begin, length);
    end_ = std::min(begin + length + 1, text_.size());
    ++number_;
    return true;
  }

  // The same, but skips lines of only white space.
  bool next_filled() {
    while (next()) {
      if (line_.find_first_not_of(" \t\r") != line_.npos) return true;
    }
    return false;
  }

  std::string_view line() const { return line_; }  // without its line break
  std::int64_t number() const { return number_; }  // line number; the first is 1
  std::size_t end() const { return end_; }         // offset of the next line in bytes

 private:
  std::string_view text_, line_;
  std::size_t end_ = 0;
  std::int64_t number_ = 0;
};

}  // namespace llmc
