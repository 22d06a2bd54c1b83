// Converts token files back into text: `tokenize --decode`.
#pragma once

#include "llmc/config/tokenize_settings.h"

namespace llmc {

// Writes the texts of token files, as one stream, to --out or stdout. In a text <|endoftext|> is
// spelled out. If --out ends in .jsonl, each document that is not empty is an object with the text
// in --field. JSON has no bytes that are not UTF-8: they become U+FFFD, and stderr reports how many
// documents have them. Memory: the tokens and the text of the longest document.
void detokenize_files(const TokenizeConfig& settings);

}  // namespace llmc
