// The tokenizers there are, by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "llmc/device/error.h"
#include "llmc/io/byte_tokenizer.h"
#include "llmc/io/tokenizer_interface.h"
#include "llmc/io/word_tokenizer.h"

namespace llmc {

// "bytes": a token for each byte, and one for the end of a text.
// "words:FILE": a token for each line of the file.
// Throws an error that says which of these there are, or what is wrong with the file.
inline std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  constexpr std::string_view kWords = "words:";
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with(kWords)) return std::make_unique<WordTokenizer>(spec.substr(kWords.size()));
  fail("there is no tokenizer \"" + spec + "\"", "bytes or words:FILE");
}

}  // namespace llmc
