#include "llmc/io/tokenizer/tokenizer_interface.h"

#include "llmc/base/error.h"
#include "llmc/io/tokenizer/added_tokens.h"

namespace llmc {

std::size_t Tokenizer::checked_index(std::int32_t token) const {
  if (token < 0 || token >= vocabulary_size()) {
    fail("token " + std::to_string(token) + " is outside the vocabulary of " +
         std::to_string(vocabulary_size()) + " tokens of the tokenizer " + name());
  }
  return static_cast<std::size_t>(token);
}

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  split_added_tokens(text, added_tokens(), [](const AddedToken&) { return true; },
                     {.text =
                          [&](std::string_view part) {
                            const std::vector<std::int32_t> ids = encode(part);
                            tokens.insert(tokens.end(), ids.begin(), ids.end());
                          },
                      .token = [&](const AddedToken& token) { tokens.push_back(token.id); }});
  return tokens;
}

}  // namespace llmc
