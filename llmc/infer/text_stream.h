// Text of tokens as they come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/utf8_stream.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class TextStream {
 public:
  // The text goes on after `last`, the prompt's last token. `tokenizer` outlives the stream.
  TextStream(const Tokenizer& tokenizer, std::int32_t last) : tokenizer_(tokenizer), last_(last) {}

  // The text that is certain with one more token: valid UTF-8, empty while a character is cut.
  std::string push(std::int32_t token) {
    // What a token adds can depend on the one before it: words are parted by a space.
    const std::int32_t both[] = {last_, token};
    const std::string before = tokenizer_.decode({both, 1});
    last_ = token;
    return utf8_.push(tokenizer_.decode(both).substr(before.size()));
  }

  // What is left of a character that was never finished, as U+FFFD.
  std::string finish() { return utf8_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  std::int32_t last_;
  Utf8Stream utf8_;
};

}  // namespace llmc
