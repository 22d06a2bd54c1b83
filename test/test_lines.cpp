// The lines of a text (llmc/base/lines.h).
#include <string>
#include <vector>

#include "llmc/base/lines.h"
#include "test/support.h"

TEST_SUITE_BEGIN("io: lines");
namespace {

using llmc::Lines;

// "NUMBER LINE END" of each line.
std::vector<std::string> listed(Lines lines, bool (Lines::*next)() = &Lines::next) {
  std::vector<std::string> all;
  while ((lines.*next)()) {
    all.push_back(std::to_string(lines.number()) + " " + std::string(lines.line()) + " " +
                  std::to_string(lines.end()));
  }
  CHECK(!(lines.*next)());
  return all;
}
using List = std::vector<std::string>;

TEST_CASE("a line break ends a line; the last one needs none") {
  CHECK(listed(Lines("")) == List{});
  CHECK(listed(Lines("\n")) == List{"1  1"});
  CHECK(listed(Lines("ab")) == List{"1 ab 2"});
  CHECK(listed(Lines("ab\n")) == List{"1 ab 3"});
  CHECK(listed(Lines("ab\n\nc")) == List{"1 ab 3", "2  4", "3 c 5"});
  CHECK(listed(Lines("a\r\nb\r\n")) == List{"1 a\r 3", "2 b\r 6"});
}

TEST_CASE("lines of white space are passed over, and counted") {
  CHECK(listed(Lines("\n \t\r\na\n\n b \n  "), &Lines::next_filled) == List{"3 a 7", "5  b  12"});
  CHECK(listed(Lines(" \n\n"), &Lines::next_filled) == List{});
}

}  // namespace
TEST_SUITE_END();
