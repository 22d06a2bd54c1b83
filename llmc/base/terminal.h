// Text for a terminal. The output of a model can be any sequence of bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace llmc {

// Replaces bytes that are not UTF-8, and control characters except line ends and tabs, by U+FFFD.
std::string readable_text(std::string_view text);

// Returns "NAME: TEXT" if the text is one line. Otherwise the first line is "NAME:", each line of
// the text is marked, and a closing line shows where the text ends:
//
//   sample:
//     | first line
//     | second line
//     (end of sample)
std::string labelled_text(const std::string& name, std::string_view text);

// Maximum number of characters of a line on stderr's terminal that the next line can overwrite;
// text that wraps into a second line stays. npos if the width is unknown.
std::size_t live_line_width();

// A line that overwrites the previous one, cut at the width of the terminal.
std::string live_line(std::string_view text);

}  // namespace llmc
