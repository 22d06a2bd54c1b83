#include "llmc/io/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/byte_names.h"

namespace llmc {

namespace {

// {"NAME": 0, "NAME": 1, ...}
std::string ids_json(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t id = 0; id < names.size(); ++id) {
    text += (id == 0 ? "{" : ",") + json_quoted(names[id]) + ":" + std::to_string(id);
  }
  return text + "}";
}

// Token names as the files write them. The name of an added token is its text.
std::vector<std::string> names_of(const BpeVocabulary& vocabulary) {
  std::vector<std::string> names;
  for (const std::string& bytes : vocabulary.bytes) names.push_back(name_of_bytes(bytes));
  for (const AddedToken& token : vocabulary.added) {
    names[static_cast<std::size_t>(token.id)] = token.text;
  }
  return names;
}

Json added_token(const AddedToken& token) {
  return {{"content", token.text},         {"single_word", token.single_word},
          {"lstrip", token.strips_left},   {"rstrip", token.strips_right},
          {"normalized", token.is_second}, {"special", token.special}};
}

// Returns the text of tokenizer.json. `model`, the longest part, is already JSON text.
std::string tokenizer_json(const Json& added, const Json& pre_tokenizer, const Json& decoder,
                           const std::string& model) {
  const Json head = {{"version", "1.0"},          {"truncation", nullptr},
                     {"padding", nullptr},        {"added_tokens", added},
                     {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer},
                     {"post_processor", nullptr}, {"decoder", decoder}};
  std::string text = head.dump();
  text.pop_back();  // the closing brace
  return text + ",\"model\":" + model + "}\n";
}

// The roles of special tokens: GPT-2 uses end-of-text for all of them. The roles are null if the
// vocabulary has no end-of-text.
Json roles(const BpeVocabulary& vocabulary) {
  Json end = nullptr;
  for (const AddedToken& token : vocabulary.added) {
    if (token.text == kEndOfText) end = token.text;
  }
  return {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
}

std::string bpe_config(const BpeVocabulary& vocabulary) {
  Json by_id = Json::object();
  for (const AddedToken& token : vocabulary.added) {
    by_id[std::to_string(token.id)] = added_token(token);
  }
  Json config = {{"tokenizer_class", "GPT2Tokenizer"},
                 {"add_prefix_space", false},
                 {"clean_up_tokenization_spaces", false},
                 {"errors", "replace"},
                 {"added_tokens_decoder", by_id}};
  config.update(roles(vocabulary));
  return config.dump(2) + "\n";
}

std::string bpe_model(const std::string& ids, const std::vector<std::string>& names,
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

std::string merges_text(const std::vector<std::string>& names,
                        const std::vector<BpeMerge>& merges) {
  std::string text = "#version: 0.2\n";
  for (const BpeMerge& merge : merges) {
    text += names[static_cast<std::size_t>(merge.left)] + ' ' +
            names[static_cast<std::size_t>(merge.right)] + '\n';
  }
  return text;
}

}  // namespace

std::vector<TextFile> bpe_files(const BpeVocabulary& vocabulary) {
  const std::vector<std::string> names = names_of(vocabulary);
  const std::string ids = ids_json(names);
  Json added = Json::array();
  for (const AddedToken& token : vocabulary.added) {
    Json entry = {{"id", token.id}};
    entry.update(added_token(token));
    added.push_back(std::move(entry));
  }
  const Json byte_level = {{"type", "ByteLevel"},
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

std::vector<TextFile> word_files(const std::vector<std::string>& words) {
  // The library requires a name for unknown words. Unknown words are an error as long as this name
  // is not in the list.
  std::string unknown = "<unk>";
  while (std::find(words.begin(), words.end(), unknown) != words.end())
    unknown = "<" + unknown + ">";
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kWordSpacePattern}}},
                      {"behavior", "Removed"},
                      {"invert", false}};
  const std::string model = R"({"type":"WordLevel","vocab":)" + ids_json(words) +
                            ",\"unk_token\":" + json_quoted(unknown) + "}";
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", tokenizer_json(Json::array(), split, nullptr, model)},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

std::string with_pad_token(const TextFile& file) {
  const auto& names = kTokenRoleFileNames;
  if (std::find(names.begin(), names.end(), file.name) == names.end()) return file.text;
  Json json = parse_json(file.text, file.name, KeyOrder::as_written);
  const auto has = [&](const char* key) { return json.contains(key) && !json[key].is_null(); };
  if (!has("eos_token") || has("pad_token")) return file.text;
  const Json end = json["eos_token"];
  json["pad_token"] = end;
  return json.dump(2) + "\n";
}

}  // namespace llmc
