#include "llmc/config/help_page.h"

#include <sstream>

namespace llmc {

namespace help_page_detail {

std::string wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::string lines, word;
  std::size_t used = 0;  // characters in the last line
  std::istringstream words(text);
  while (words >> word) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (used > 0) lines += fits ? " " : "\n" + std::string(indent, ' ');
    used = (fits && used > 0 ? used + 1 : 0) + word.size();
    lines += word;
  }
  return lines;
}

std::string flag_lines(const std::string& names, const std::string& value_name,
                       const std::string& help) {
  std::string begin = "  " + names + (value_name.empty() ? "" : " " + value_name);
  if (begin.size() < kHelpColumn) {
    begin.resize(kHelpColumn, ' ');
  } else {
    begin += "\n" + std::string(kHelpColumn, ' ');
  }
  return begin + wrap(help, kColumns - kHelpColumn, kHelpColumn) + "\n";
}

}  // namespace help_page_detail

}  // namespace llmc
