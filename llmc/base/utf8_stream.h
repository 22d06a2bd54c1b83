// Text from bytes that come in pieces cut anywhere, as those of a model do: a token may hold half a
// character, and a model may write what is no UTF-8 at all.
#pragma once

#include <string>
#include <string_view>

#include "llmc/base/utf8.h"

namespace llmc {

// Each piece that push() and finish() return is valid UTF-8. Together they are the bytes, with
// U+FFFD for what is no character: what Python's bytes.decode(errors="replace") makes of them.
class Utf8Stream {
 public:
  // Takes bytes and returns what is certain by now. At most three bytes, which may still become a
  // character, are held back.
  std::string push(std::string_view bytes) {
    held_ += bytes;
    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
      const Utf8Start start = utf8_start(rest);
      if (start.kind == Utf8Start::Kind::cut) break;
      const bool good = start.kind == Utf8Start::Kind::character;
      text += good ? rest.substr(0, start.length) : kReplacement;
      rest.remove_prefix(start.length);
    }
    held_ = std::string(rest);
    return text;
  }

  // No more bytes come: what is held back will never be a character.
  std::string finish() {
    const std::string text(held_.empty() ? std::string_view() : kReplacement);
    held_.clear();
    return text;
  }

 private:
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
  std::string held_;
};

}  // namespace llmc
