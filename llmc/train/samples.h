// The prompt of the samples that training shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// The tokens that samples begin with, for a model that sees T tokens: those of `prompt`. If that is
// empty: a line break, or if the tokenizer has none, end of text or its first token.
inline std::vector<std::int32_t> sample_prompt(const std::string& prompt,
                                               const Tokenizer& tokenizer, std::int64_t T) {
  const std::string text = prompt.empty() ? "\n" : prompt;
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (ids.empty() && prompt.empty()) ids = {tokenizer.end_of_text().value_or(0)};
  if (ids.empty()) fail("--prompt '" + text + "' has no tokens", "a text with at least one token");
  const auto room = static_cast<std::size_t>(T - 1);
  if (ids.size() > room) {
    fail("--prompt has " + std::to_string(ids.size()) + " tokens",
         "at most --seq-len - 1 = " + std::to_string(room));
  }
  return ids;
}

}  // namespace llmc
