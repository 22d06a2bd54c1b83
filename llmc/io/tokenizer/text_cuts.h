// Where a text can be cut so that its parts, tokenized one by one, give the tokens of the whole:
// how one long document keeps many cores busy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Whether cut_text's places are exact for this tokenizer.
//
// For byte pair encoding after GPT-2's pattern they are. Tokens stay within the pieces that the
// pattern makes, so it is enough that X" Y" has the pieces of X followed by those of " Y", where X
// ends in a letter and Y begins with one.
// - No piece has both X's last letter and the space: a piece is a contraction ('s), a run of
//   letters, of digits or of others with at most one space, which comes first, or white space
//   alone.
// - The pieces within X do not depend on what follows. The only look ahead is that of a run of
//   white space, at one character, and since X ends in a letter that is in X. A run of letters
//   stops at the space as it does at the end of X.
// - The pieces from the space on depend on nothing before it: the pattern never looks back.
// A space and the letters beside it are single bytes, so no character is cut, and which bytes are
// no UTF-8 is decided on either side alone.
//
// Bytes have no neighbours at all. Other tokenizers get their documents whole.
inline bool cuts_are_exact(const Tokenizer& tokenizer) {
  return dynamic_cast<const BpeTokenizer*>(&tokenizer) != nullptr ||
         dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr;
}

// The parts of a text, views into it: each ends at the first place from `least` bytes on where an
// ASCII letter, a space and an ASCII letter meet. One part where there is none.
inline std::vector<std::string_view> cut_text(std::string_view text, std::size_t least) {
  const auto letter = [&](std::size_t i) {
    const char lower = static_cast<char>(text[i] | 0x20);
    return lower >= 'a' && lower <= 'z';
  };
  std::vector<std::string_view> parts;
  while (true) {
    std::size_t at = text.find(' ', std::max<std::size_t>(least, 1));
    while (at < text.size() && !(at + 1 < text.size() && letter(at - 1) && letter(at + 1))) {
      at = text.find(' ', at + 1);
    }
    if (at >= text.size()) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace llmc
