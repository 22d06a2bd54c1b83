// One token per byte, in the order of GPT-2's encoder.json, and one token for the end of a text.
// Needs no files and encodes every text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class ByteTokenizer : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 257; }

  std::vector<std::int32_t> encode(std::string_view text) const override;

  std::string decode(std::span<const std::int32_t> tokens) const override;

  std::optional<std::int32_t> end_of_text() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::vector<AddedToken> added_tokens() const override { return {{std::string(kEndOfText), 256}}; }

  // The files of a byte pair encoding without merges.
  std::vector<TextFile> files() const override;
};

}  // namespace llmc
