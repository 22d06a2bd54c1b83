// Fuzz target for a list of words. The text to encode is the list itself: each line must become its
// own token.
#pragma once

#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void word_list(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.write("words.txt", input);
  is_rejected(path, [&] {
    const llmc::WordTokenizer tokenizer(path);
    const std::vector<std::int32_t> tokens = tokenizer.encode(input);
    expect(std::ssize(tokens) == tokenizer.vocabulary_size(), "each line is a token");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      expect(tokens[i] == static_cast<std::int32_t>(i), "the token of a word is its line number");
    }
    expect(tokenizer.encode(tokenizer.decode(tokens)) == tokens,
           "decoding and encoding words returns the same tokens");
    is_rejected(path, [&] { tokenizer.encode("a word that is not there"); });
  });
}

}  // namespace llmc_fuzz
