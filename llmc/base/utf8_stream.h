// Text from bytes that arrive in pieces cut at any place, such as the output of a model: a token
// can hold half a character, and a model can write bytes that are not UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace llmc {

// Each piece that push() and finish() return is valid UTF-8. Together they are the bytes, with
// U+FFFD in place of those that are no character, as Python's bytes.decode(errors="replace")
// returns them.
class Utf8Stream {
 public:
  // Adds bytes and returns the text that is certain so far. At most three bytes, which may still
  // become a character, are held back.
  std::string push(std::string_view bytes);

  // Ends the stream. Bytes that are still held back are no character and become U+FFFD.
  std::string finish();

 private:
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string pending_;
};

// The text with U+FFFD in place of bytes that are no character.
std::string valid_utf8(std::string_view bytes);

}  // namespace llmc
