#include "llmc/base/utf8_stream.h"

#include "llmc/base/utf8.h"

namespace llmc {

std::string Utf8Stream::push(std::string_view bytes) {
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

std::string Utf8Stream::finish() {
  const std::string text(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return text;
}

std::string valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

}  // namespace llmc
