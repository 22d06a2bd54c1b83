// One token per byte, in the order of GPT-2's encoder.json, and one token for the end of a text.
// Needs no files and encodes every text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/byte_names.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class ByteTokenizer : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 257; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(kIdOfByte[static_cast<std::uint8_t>(c)]);
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      const std::size_t id = checked_index(token);
      if (id < kByteOrder.size()) {
        text += static_cast<char>(kByteOrder[id]);
      } else {
        text += kEndOfText;
      }
    }
    return text;
  }

  std::optional<std::int32_t> end_of_text() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::vector<SpecialToken> special_tokens() const override {
    return {{std::string(kEndOfText), 256}};
  }

  // The files of a byte pair encoding without merges.
  std::vector<TextFile> files() const override {
    BpeVocabulary vocabulary{
        .bytes = {}, .merges = {}, .special = special_tokens(), .byte_ids = kIdOfByte};
    for (const std::uint8_t byte : kByteOrder) {
      vocabulary.bytes.emplace_back(1, static_cast<char>(byte));
    }
    vocabulary.bytes.emplace_back(kEndOfText);
    return bpe_files(vocabulary);
  }
};

}  // namespace llmc
