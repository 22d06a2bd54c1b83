// Distinguishes UTF-8 from other bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmc {

// The first character of a text, or the bytes in its place.
struct Utf8Start {
  enum class Kind {
    character,  // `length` bytes long
    broken,     // `length` bytes that belong to no character
    cut         // the whole text, `length` bytes, is the beginning of a character
  };
  Kind kind;
  std::size_t length;
};

// Reads the start of a non-empty text (the Unicode Standard, table 3-7: overlong forms, surrogates
// and values beyond U+10FFFF are not characters). Broken bytes are counted as in Unicode's
// "substitution of maximal subparts" (3.9): as many as begin some character, otherwise one.
inline Utf8Start utf8_start(std::string_view text) {
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

// Length in bytes of the character at the start of `text`; 0 if there is none.
inline std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Utf8Start start = utf8_start(text);
  return start.kind == Utf8Start::Kind::character ? start.length : 0;
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace llmc
