// Fuzz target for a list of words. The text to encode is the list itself: each line must become its
// own token.
#pragma once

#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void word_list(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.write("words.txt", input);
  refused(path, [&] {
    const llmc::WordTokenizer tokenizer(path);
    const std::vector<std::int32_t> tokens = tokenizer.encode(input);
    expect(std::ssize(tokens) == tokenizer.vocabulary_size(), "each line is a token");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      expect(tokens[i] == static_cast<std::int32_t>(i), "a word's token is its line");
    }
    expect(tokenizer.encode(tokenizer.decode(tokens)) == tokens, "words survive their tokens");
    refused(path, [&] { tokenizer.encode("a word that is not there"); });
  });
}

}  // namespace llmc_fuzz
