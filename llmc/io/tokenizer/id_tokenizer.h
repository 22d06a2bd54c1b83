// The tokenizer of token files whose text is unknown: it knows the number of tokens, and neither
// encodes nor decodes. Training needs no more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class IdTokenizer final : public Tokenizer {
 public:
  // The vocabulary of GPT-2, whose last token is end-of-text.
  static constexpr std::int64_t kGpt2Vocabulary = 50257;
  static constexpr const char* kName = "token ids";

  explicit IdTokenizer(std::int64_t vocabulary_size);

  std::int64_t vocabulary_size() const override { return vocabulary_size_; }
  bool has_text() const override { return false; }

  // Both throw: there is no text.
  std::vector<std::int32_t> encode(std::string_view) const override { fail_without_text(); }
  std::string decode(std::span<const std::int32_t>) const override { fail_without_text(); }

  std::optional<std::int32_t> end_of_text() const override;
  std::string name() const override { return kName; }

 private:
  [[noreturn]] static void fail_without_text();

  std::int64_t vocabulary_size_;
};

}  // namespace llmc
