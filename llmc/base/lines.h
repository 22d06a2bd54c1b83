// The lines of a text, one after another, with their numbers.
#pragma once

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
  bool next();

  // The same, but skips lines of only white space.
  bool next_filled();

  std::string_view line() const { return line_; }  // without its line break
  std::int64_t number() const { return number_; }  // line number; the first is 1
  std::size_t end() const { return end_; }         // offset of the next line in bytes

 private:
  std::string_view text_, line_;
  std::size_t end_ = 0;
  std::int64_t number_ = 0;
};

}  // namespace llmc
