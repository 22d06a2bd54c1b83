// Text from bytes that arrive in pieces cut at any place, such as the output of a model: a token
// can hold half a character, and a model can write bytes that are not UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "llmc/base/utf8.h"

namespace llmc {

// Each piece that push() and finish() return is valid UTF-8. Together they are the bytes, with
// U+FFFD in place of those that are no character, as Python's bytes.decode(errors="replace")
// returns them.
class Utf8Stream {
 public:
  // Adds bytes and returns the text that is certain so far. At most three bytes, which may still
  // become a character, are held back.
  std::string push(std::string_view bytes) {
    pending_ += bytes;
    std::string text;
    std::string_view rest = pending_;
    while (!rest.empty()) {
      const Utf8Start start = utf8_start(rest);
      if (start.kind == Utf8Start::Kind::cut) break;
      const bool valid = start.kind == Utf8Start::Kind::character;
      text += valid ? rest.substr(0, start.length) : kReplacement;
      rest.remove_prefix(start.length);
    }
    pending_ = std::string(rest);
    return text;
  }

  // Ends the stream. Bytes that are still held back are no character and become U+FFFD.
  std::string finish() {
    const std::string text(pending_.empty() ? std::string_view() : kReplacement);
    pending_.clear();
    return text;
  }

 private:
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string pending_;
};

// The text with U+FFFD in place of bytes that are no character.
inline std::string valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

}  // namespace llmc
