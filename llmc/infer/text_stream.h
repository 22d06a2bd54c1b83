// Converts tokens to text one by one.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/base/utf8_stream.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class TextStream {
 public:
  // The text continues after `last`, the prompt's last token. `tokenizer` must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::int32_t last) : tokenizer_(tokenizer), last_(last) {}

  // Adds a token and returns the text that is certain with it: valid UTF-8, empty while a character
  // is incomplete.
  std::string push(std::int32_t token);

  // U+FFFD for the rest of a character that is still incomplete, otherwise an empty text.
  std::string finish() { return utf8_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  std::int32_t last_;
  Utf8Stream utf8_;
};

}  // namespace llmc
