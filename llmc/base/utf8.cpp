#include "llmc/base/utf8.h"

#include <cstdint>

namespace llmc {

Utf8Start utf8_start(std::string_view text) {
  using Kind = Utf8Start::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {Kind::character, 1};
  if (first < 0xc2 || first > 0xf4) return {Kind::broken, 1};
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  std::uint8_t min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  std::uint8_t max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Kind::cut, i};
    if (byte(i) < min || byte(i) > max) return {Kind::broken, i};
    min = 0x80;
    max = 0xbf;
  }
  return {Kind::character, length};
}

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Utf8Start start = utf8_start(text);
  return start.kind == Utf8Start::Kind::character ? start.length : 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace llmc
