// The search for added tokens in a text, as Hugging Face's `tokenizers` does it.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

struct AddedTokenUses {
  std::function<void(std::string_view)> text;  // a part without added tokens; not empty
  std::function<void(const AddedToken&)> token;
};

// Calls the uses for the parts of a text, in order. At each place the longest token is found, and
// the first place counts. Tokens with is_second are searched for only between the others. A
// token for which `selects` is false is found, but remains text; so does one with single_word
// within a word.
void split_added_tokens(std::string_view text, const std::vector<AddedToken>& tokens,
                        const std::function<bool(const AddedToken&)>& selects,
                        const AddedTokenUses& uses);

}  // namespace llmc
