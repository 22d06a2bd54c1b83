// The lines of a text (llmc/base/lines.h).
#include <string>
#include <vector>

#include "llmc/base/lines.h"
#include "test/support.h"

TEST_SUITE_BEGIN("io: lines");
namespace {

using llmc::Lines;

// Returns "NUMBER LINE END" for each line.
std::vector<std::string> list_of(Lines lines, bool (Lines::*next)() = &Lines::next) {
  std::vector<std::string> all;
  while ((lines.*next)()) {
    all.push_back(std::to_string(lines.number()) + " " + std::string(lines.line()) + " " +
                  std::to_string(lines.end()));
  }
  CHECK(!(lines.*next)());
  return all;
}
using List = std::vector<std::string>;

TEST_CASE("a line break ends a line; the last line needs none") {
  CHECK(list_of(Lines("")) == List{});
  CHECK(list_of(Lines("\n")) == List{"1  1"});
  CHECK(list_of(Lines("ab")) == List{"1 ab 2"});
  CHECK(list_of(Lines("ab\n")) == List{"1 ab 3"});
  CHECK(list_of(Lines("ab\n\nc")) == List{"1 ab 3", "2  4", "3 c 5"});
  CHECK(list_of(Lines("a\r\nb\r\n")) == List{"1 a\r 3", "2 b\r 6"});
}

TEST_CASE("next_filled skips lines of white space and counts them") {
  CHECK(list_of(Lines("\n \t\r\na\n\n b \n  "), &Lines::next_filled) == List{"3 a 7", "5  b  12"});
  CHECK(list_of(Lines(" \n\n"), &Lines::next_filled) == List{});
}

}  // namespace
TEST_SUITE_END();
