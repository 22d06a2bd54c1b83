// Fuzz target for UTF-8 in pieces. Each byte of the first line is the length of one piece; the text
// follows.
#pragma once

#include "llmc/base/terminal.h"
#include "llmc/base/utf8.h"
#include "llmc/base/utf8_stream.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void utf8_stream(std::string_view input) {
  const std::string_view lengths = input.substr(0, input.find('\n'));
  const std::string_view text = input.substr(std::min(lengths.size() + 1, input.size()));
  llmc::Utf8Stream pieces, whole;
  std::string actual, expected = whole.push(text);
  expected += whole.finish();
  std::string_view rest = text;
  for (const char c : lengths) {
    const std::size_t length =
        std::min<std::size_t>(static_cast<unsigned char>(c) % 8, rest.size());
    const std::string piece = pieces.push(rest.substr(0, length));
    expect(llmc::is_utf8(piece), "each piece is UTF-8");
    actual += piece;
    rest.remove_prefix(length);
  }
  actual += pieces.push(rest);
  actual += pieces.finish();
  expect(actual == expected, "the cuts of a text change nothing");
  expect((expected == text) == llmc::is_utf8(text),
         "UTF-8 stays unchanged, and other bytes do not");
  const std::string readable = llmc::readable_text(text);
  expect(llmc::is_utf8(readable) && llmc::readable_text(readable) == readable,
         "readable text is UTF-8 and stays unchanged");
}

}  // namespace llmc_fuzz
