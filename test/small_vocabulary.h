// A byte pair encoding with a few merges, and the files it is published in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "test/support.h"
#include "test/write_file.h"

namespace llmc_test {

// How GPT-2's files write a byte, according to their definition: printable Latin-1 characters stand
// for themselves; the other bytes are numbered from U+0100.
inline std::string symbol_of(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int character = byte;
  if (!printable(byte)) {
    character = 256;
    for (int other = 0; other < byte; ++other) character += printable(other) ? 0 : 1;
  }
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

inline std::string symbols_of(const std::string& bytes) {
  std::string symbols;
  for (const char c : bytes) symbols += symbol_of(static_cast<std::uint8_t>(c));
  return symbols;
}

using Merges = std::vector<std::pair<std::string, std::string>>;  // as bytes

inline const Merges kFewMerges = {{"h", "e"}, {"l", "l"},    {"he", "ll"},
                                  {" ", "w"}, {"hell", "o"}, {"\xc3", "\xa9"}};

// Ids: 0-255 are the bytes of that value (not GPT-2's order, which no code may rely on), then the
// merges, then end-of-text.
struct SmallVocabulary {
  std::map<std::string, int> ids;  // by the token's bytes
  Merges merges;

  explicit SmallVocabulary(Merges list) : merges(std::move(list)) {
    for (int byte = 0; byte < 256; ++byte)
      ids.emplace(std::string(1, static_cast<char>(byte)), byte);
    for (const auto& [left, right] : merges) ids.emplace(left + right, ids.size());
    ids.emplace(std::string(llmc::kEndOfText), ids.size());
  }

  std::string json() const {
    std::string text;
    for (const auto& [bytes, id] : ids) {
      text += (text.empty() ? "{" : ", ") + llmc::json_quoted(symbols_of(bytes)) + ": " +
              std::to_string(id);
    }
    return text + "}";
  }

  std::string bpe() const {
    std::string text = "#version: 0.2\n";
    for (const auto& [left, right] : merges)
      text += symbols_of(left) + " " + symbols_of(right) + "\n";
    return text;
  }

  void save(const TemporaryDirectory& at) const {
    write(at.file("encoder.json"), json());
    write(at.file("vocab.bpe"), bpe());
  }
};

}  // namespace llmc_test
