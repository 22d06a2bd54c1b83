// The files of a tokenizer, in the form that transformers' AutoTokenizer and make_tokenizer read.
// tokenizer.json holds the whole tokenizer; vocab.json and merges.txt are the older form of byte
// pair encodings.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// The characters that separate words in a WordTokenizer, and the same set as a pattern for
// tokenizer.json.
inline constexpr std::string_view kWordSpace = " \t\n\v\f\r";
inline constexpr std::string_view kWordSpacePattern = R"([ \t\n\x0b\x0c\r]+)";

// The names of all files that may belong to a tokenizer.
inline constexpr std::array<const char*, 8> kTokenizerFileNames = {"tokenizer.json",
                                                                   "tokenizer_config.json",
                                                                   "special_tokens_map.json",
                                                                   "added_tokens.json",
                                                                   "vocab.json",
                                                                   "merges.txt",
                                                                   "encoder.json",
                                                                   "vocab.bpe"};

// The names of those that state the roles of tokens, such as end-of-text and padding.
inline constexpr std::array<std::string_view, 2> kTokenRoleFileNames = {"tokenizer_config.json",
                                                                        "special_tokens_map.json"};

std::vector<TextFile> bpe_files(const BpeVocabulary& vocabulary);

// The files of a word list; each word is valid UTF-8.
std::vector<TextFile> word_files(const std::vector<std::string>& words);

// Returns the text of a file of a tokenizer. In kTokenRoleFileNames, end-of-text is the pad token
// too, unless they name one: transformers needs it for batches of a classifier.
std::string with_pad_token(const TextFile& file);

}  // namespace llmc
