// The files of a tokenizer, in the form that transformers' AutoTokenizer and make_tokenizer read.
// tokenizer.json holds the whole tokenizer; vocab.json and merges.txt are the older form of byte
// pair encodings.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/byte_names.h"
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

namespace tokenizer_files {

// {"NAME": 0, "NAME": 1, ...}
inline std::string ids_json(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t id = 0; id < names.size(); ++id) {
    text += (id == 0 ? "{" : ",") + json_quoted(names[id]) + ":" + std::to_string(id);
  }
  return text + "}";
}

// Token names as the files write them. The name of a special token is its text.
inline std::vector<std::string> names_of(const BpeVocabulary& vocabulary) {
  std::vector<std::string> names;
  for (const std::string& bytes : vocabulary.bytes) names.push_back(name_of_bytes(bytes));
  for (const SpecialToken& token : vocabulary.special) {
    names[static_cast<std::size_t>(token.id)] = token.text;
  }
  return names;
}

inline OrderedJson added_token(const SpecialToken& token) {
  return {{"content", token.text}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},       {"normalized", false},  {"special", true}};
}

// Returns the text of tokenizer.json. `model`, the longest part, is already JSON text.
inline std::string tokenizer_json(const OrderedJson& added, const OrderedJson& pre_tokenizer,
                                  const OrderedJson& decoder, const std::string& model) {
  const OrderedJson head = {{"version", "1.0"},          {"truncation", nullptr},
                            {"padding", nullptr},        {"added_tokens", added},
                            {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer},
                            {"post_processor", nullptr}, {"decoder", decoder}};
  std::string text = head.dump();
  text.pop_back();  // the closing brace
  return text + ",\"model\":" + model + "}\n";
}

// The roles of special tokens: GPT-2 uses end-of-text for all of them. The roles are null if the
// vocabulary has no end-of-text.
inline OrderedJson roles(const BpeVocabulary& vocabulary) {
  OrderedJson end = nullptr;
  for (const SpecialToken& token : vocabulary.special) {
    if (token.text == kEndOfText) end = token.text;
  }
  return {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
}

inline std::string bpe_config(const BpeVocabulary& vocabulary) {
  OrderedJson by_id = OrderedJson::object();
  for (const SpecialToken& token : vocabulary.special) {
    by_id[std::to_string(token.id)] = added_token(token);
  }
  OrderedJson config = {{"tokenizer_class", "GPT2Tokenizer"},
                        {"add_prefix_space", false},
                        {"clean_up_tokenization_spaces", false},
                        {"errors", "replace"},
                        {"added_tokens_decoder", by_id}};
  config.update(roles(vocabulary));
  return config.dump(2) + "\n";
}

inline std::string bpe_model(const std::string& ids, const std::vector<std::string>& names,
                             const std::vector<BpeMerge>& merges) {
  std::string text =
      R"({"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",)"
      R"("end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,)"
      R"("vocab":)";
  text += ids + ",\"merges\":[";
  for (const BpeMerge& merge : merges) {
    if (text.back() != '[') text += ',';
    text += '[' + json_quoted(names[static_cast<std::size_t>(merge.left)]) + ',' +
            json_quoted(names[static_cast<std::size_t>(merge.right)]) + ']';
  }
  return text + "]}";
}

inline std::string merges_text(const std::vector<std::string>& names,
                               const std::vector<BpeMerge>& merges) {
  std::string text = "#version: 0.2\n";
  for (const BpeMerge& merge : merges) {
    text += names[static_cast<std::size_t>(merge.left)] + ' ' +
            names[static_cast<std::size_t>(merge.right)] + '\n';
  }
  return text;
}

}  // namespace tokenizer_files

inline std::vector<TextFile> bpe_files(const BpeVocabulary& vocabulary) {
  using namespace tokenizer_files;
  const std::vector<std::string> names = names_of(vocabulary);
  const std::string ids = ids_json(names);
  OrderedJson added = OrderedJson::array();
  for (const SpecialToken& token : vocabulary.special) {
    added.push_back({{"id", token.id}});
    added.back().update(added_token(token));
  }
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", true}};
  const std::string model = bpe_model(ids, names, vocabulary.merges);
  return {{"tokenizer.json", tokenizer_json(added, byte_level, byte_level, model)},
          {"tokenizer_config.json", bpe_config(vocabulary)},
          {"special_tokens_map.json", roles(vocabulary).dump(2) + "\n"},
          {"vocab.json", ids + "\n"},
          {"merges.txt", merges_text(names, vocabulary.merges)}};
}

// The files of a word list; each word is valid UTF-8.
inline std::vector<TextFile> word_files(const std::vector<std::string>& words) {
  using namespace tokenizer_files;
  // The library requires a name for unknown words. Unknown words are an error as long as this name
  // is not in the list.
  std::string unknown = "<unk>";
  while (std::find(words.begin(), words.end(), unknown) != words.end())
    unknown = "<" + unknown + ">";
  const OrderedJson split = {{"type", "Split"},
                             {"pattern", {{"Regex", kWordSpacePattern}}},
                             {"behavior", "Removed"},
                             {"invert", false}};
  const std::string model = R"({"type":"WordLevel","vocab":)" + ids_json(words) +
                            ",\"unk_token\":" + json_quoted(unknown) + "}";
  const OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", tokenizer_json(OrderedJson::array(), split, nullptr, model)},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace llmc
