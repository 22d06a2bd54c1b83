#include "llmc/io/tokenizer/tokenizer_interface.h"

#include <array>

#include "llmc/base/error.h"

namespace llmc {

std::size_t Tokenizer::checked_index(std::int32_t token) const {
  if (token < 0 || token >= vocabulary_size()) {
    fail("token " + std::to_string(token) + " is outside the vocabulary of " +
         std::to_string(vocabulary_size()) + " tokens of the tokenizer " + name());
  }
  return static_cast<std::size_t>(token);
}

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  const std::vector<SpecialToken> special = special_tokens();
  std::array<bool, 256> can_begin{};
  for (const SpecialToken& token : special)
    can_begin[static_cast<unsigned char>(token.text[0])] = true;
  std::vector<std::int32_t> tokens;
  const auto add_plain = [&](std::string_view part) {
    const std::vector<std::int32_t> ids = encode(part);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  std::size_t plain_begin = 0;  // start of the text that is not encoded yet
  for (std::size_t at = 0; at < text.size();) {
    const SpecialToken* match = nullptr;
    if (can_begin[static_cast<unsigned char>(text[at])]) {
      for (const SpecialToken& token : special) {
        const bool is_longer = match == nullptr || token.text.size() > match->text.size();
        if (is_longer && text.substr(at).starts_with(token.text)) match = &token;
      }
    }
    if (match == nullptr) {
      ++at;
      continue;
    }
    add_plain(text.substr(plain_begin, at - plain_begin));
    tokens.push_back(match->id);
    plain_begin = at += match->text.size();
  }
  add_plain(text.substr(plain_begin));
  return tokens;
}

}  // namespace llmc
