// Text for a person's terminal. What a model writes is any sequence of bytes.
#pragma once

#include <string>
#include <string_view>

#include "llmc/io/utf8.h"

namespace llmc {

// Bytes that are no UTF-8 and control characters (but for line ends and tabs) become U+FFFD.
inline std::string readable_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    out += length == 0 || control ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace llmc
