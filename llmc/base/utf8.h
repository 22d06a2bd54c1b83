// Distinguishes UTF-8 from other bytes.
#pragma once

#include <cstddef>
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
Utf8Start utf8_start(std::string_view text);

// Length in bytes of the character at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace llmc
