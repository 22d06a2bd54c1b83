// Cuts a text into parts whose tokens, concatenated, are the tokens of the whole text. So one long
// document can use many cores.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Returns whether the cuts of cut_text are exact for this tokenizer.
//
// They are exact for byte pair encoding after GPT-2's pattern. Tokens stay within the pieces of the
// pattern. Let X end in a letter and Y begin with a letter. It is enough to show that X + " " + Y
// has the pieces of X followed by the pieces of " " + Y.
// - No piece contains both the last letter of X and the space. A piece is a contraction ('s), a run
//   of white space, or a run of letters, of digits or of other characters. A run of the last three
//   kinds has at most one space, which comes first.
// - The pieces within X do not depend on the text after X. Only a run of white space looks ahead,
//   by one character. That character is in X, because X ends in a letter. A run of letters stops at
//   the space as it stops at the end of X.
// - The pieces from the space on depend on nothing before it: the pattern never looks back.
// The space and the letters next to it are single bytes, so no character is cut. Which bytes are
// not UTF-8 is decided separately on each side.
//
// ByteTokenizer encodes each byte separately, so every cut is exact. Other tokenizers, and those
// with added tokens that are not special, get whole documents.
bool cuts_are_exact(const Tokenizer& tokenizer);

// Returns the parts of a text, as views into it. Each part except the last has at least `min_bytes`
// bytes and ends at the next place where an ASCII letter, a space and an ASCII letter meet. The
// space begins the next part. Returns one part if there is no such place.
std::vector<std::string_view> cut_text(std::string_view text, std::size_t min_bytes);

}  // namespace llmc
