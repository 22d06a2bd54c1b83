#include "llmc/io/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/tokenizer/added_token_lists.h"
#include "llmc/io/tokenizer/bpe_files.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/json_section.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/word_tokenizer.h"

namespace llmc {

namespace {

// Reads added_tokens, which `tokenizers` searches for in a text before any other step.
void list_added(const JsonSection& file, BpeListing& listing) {
  listing.added_source = file.place("added_tokens");
  const Json* added = file.find("added_tokens");
  if (added == nullptr) return;
  if (!added->is_array()) fail(listing.added_source + " is not a list");
  for (const Json& item : *added) {
    const JsonSection token(
        item, listing.added_source + "[" + std::to_string(listing.added.size()) + "]");
    listing.added.push_back(bpe::added_token(token, json_size(token.at("id"), token.place("id"))));
  }
  bpe::close_gaps(listing);
}

// Reads merges, each written as "a b" or ["a", "b"].
void list_merges(const JsonSection& model, BpeListing& listing) {
  listing.merges_source = model.place("merges");
  listing.first_merge = 0;
  const Json& merges = model.at("merges");
  if (!merges.is_array()) fail(listing.merges_source + " is not a list");
  for (const Json& merge : merges) {
    const std::string location =
        listing.merges_source + ", merge " + std::to_string(listing.merges.size()) + ": ";
    if (merge.is_string()) {
      listing.merges.push_back(bpe::two_names(merge.text(), location));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      listing.merges.emplace_back(merge[0].text(), merge[1].text());
    } else {
      fail(location + printable(merge.dump(-1, true)) + " is not two tokens",
           "write a merge as \"a b\" or [\"a\", \"b\"]");
    }
  }
}

// Throws unless the post-processor is known to change no ids and add no special tokens. ByteLevel
// changes only offsets, which this engine does not use.
void check_post_processor(const JsonSection& file) {
  if (file.find("post_processor") == nullptr) return;
  const JsonSection post_processor = file.section("post_processor");
  post_processor.expect("type", {"ByteLevel", "TemplateProcessing"});
  if (post_processor.at("type") == "TemplateProcessing")
    post_processor.expect("special_tokens", {Json::object()});
}

// Checks a pre-tokenizer of the type ByteLevel. `splits`: it splits by GPT-2's pattern.
void check_byte_level(const JsonSection& pre_tokenizer, bool splits) {
  pre_tokenizer.expect("type", {"ByteLevel"});
  pre_tokenizer.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  pre_tokenizer.expect("add_prefix_space", {false});
  pre_tokenizer.expect("use_regex",
                       splits ? std::vector<Json>{true, nullptr} : std::vector<Json>{false});
}

// Checks a pre-tokenizer of the type Split: GPT-2's pattern, in one of its usual spellings. Its
// matches cover each text, so it does not matter what becomes of the text between them.
void check_split(const JsonSection& split) {
  split.expect("type", {"Split"});
  split.allow_only({"type", "pattern", "behavior", "invert"});
  const Json spelled_out = {
      {"Regex", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}};
  const Json grouped = {
      {"Regex", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}};
  split.expect("pattern", {spelled_out, grouped});
  const bool removed = split.at("behavior") == "Removed";
  split.expect("behavior", {"Isolated", "Removed"});
  split.expect("invert",
               removed ? std::vector<Json>{true} : std::vector<Json>{false, true, nullptr});
}

// Checks the pre-tokenizer, which splits a text before the merges: ByteLevel, which splits too, or
// a sequence of that alone or of Split and ByteLevel.
void check_pre_tokenizer(const JsonSection& file) {
  const JsonSection pre_tokenizer = file.section("pre_tokenizer");
  if (pre_tokenizer.at("type") != "Sequence") return check_byte_level(pre_tokenizer, true);
  pre_tokenizer.allow_only({"type", "pretokenizers"});
  const Json& steps = pre_tokenizer.at("pretokenizers");
  const std::string place = pre_tokenizer.place("pretokenizers");
  if (!steps.is_array() || steps.empty() || steps.size() > 2) {
    fail(place + " is not a list of ByteLevel, or of Split and ByteLevel");
  }
  const bool has_split = steps.size() == 2;
  if (has_split) check_split({steps[0], place + "[0]"});
  check_byte_level({steps[steps.size() - 1], place + "[" + std::to_string(steps.size() - 1) + "]"},
                   !has_split);
}

std::unique_ptr<Tokenizer> read_bpe(const JsonSection& file, const std::string& name) {
  check_pre_tokenizer(file);
  // The decoder turns byte names back into bytes.
  file.section("decoder").expect("type", {"ByteLevel"});
  const JsonSection model = file.section("model");
  model.allow_only({"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
  model.expect("dropout", {nullptr, 0.0});
  model.expect("continuing_subword_prefix", {nullptr, ""});
  model.expect("end_of_word_suffix", {nullptr, ""});
  model.expect("ignore_merges", {nullptr, false});
  // Every byte has a token, so no text is unknown: unk_token, fuse_unk and byte_fallback have no
  // effect.
  BpeListing listing;
  listing.ids_source = model.place("vocab");
  listing.ids = bpe::named_ids(model.at("vocab"), listing.ids_source);
  list_merges(model, listing);
  list_added(file, listing);
  return std::make_unique<BpeTokenizer>(make_bpe_vocabulary(listing), name);
}

std::unique_ptr<Tokenizer> read_words(const JsonSection& file, const std::string& path,
                                      const std::string& name) {
  // In the order in which an error shows the member of the file.
  const Json split = {{"behavior", "Removed"},
                      {"invert", false},
                      {"pattern", {{"Regex", kWordSpacePattern}}},
                      {"type", "Split"}};
  file.expect("pre_tokenizer", {split});
  file.expect("decoder", {nullptr});
  file.expect("added_tokens", {nullptr, Json::array()});
  const JsonSection model = file.section("model");
  model.allow_only({"type", "vocab", "unk_token"});
  const std::string source = model.place("vocab");
  const BpeListing::NamedIds ids = bpe::named_ids(model.at("vocab"), source);
  std::vector<std::string> words(ids.size());
  for (const auto& [word, id] : ids) {
    const std::string what = source + ": the id of " + bpe::in_quotes(word);
    if (word.empty()) fail(what + " belongs to an empty word");
    if (id >= std::ssize(words)) {
      fail(what + " is " + std::to_string(id) + ", but there are only " +
           std::to_string(words.size()) + " words");
    }
    std::string& place = words[static_cast<std::size_t>(id)];
    if (!place.empty()) {
      fail(what + " is " + std::to_string(id) + ", which is also the id of another word");
    }
    place = word;
  }
  const std::string unknown_token = json_text(model.at("unk_token"), model.place("unk_token"));
  if (std::find(words.begin(), words.end(), unknown_token) != words.end()) {
    fail(model.place("unk_token") + " is the word " + bpe::in_quotes(unknown_token) +
             ", which would hide unknown words",
         "give an unk_token that is not in the list; an unknown word is an error");
  }
  return std::make_unique<WordTokenizer>(words, path, name);
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::filesystem::path& path,
                                               const std::string& name) {
  const Json json = parse_json(read_file(path), path.string());
  const JsonSection file(json, path.string());
  if (file.find("model") == nullptr) {
    fail(path.string() + " is not a tokenizer.json: it has no \"model\"",
         "give the directory of encoder.json and vocab.bpe, or of vocab.json and merges.txt");
  }
  file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  // truncation and padding are the settings of an earlier call, which each call of transformers
  // replaces.
  file.expect("normalizer", {nullptr});
  check_post_processor(file);
  const JsonSection model = file.section("model");
  // GPT-2's own file is older than this key and does not have it.
  const bool untyped_bpe = model.find("type") == nullptr && model.find("merges") != nullptr;
  if (!untyped_bpe) model.expect("type", {"BPE", "WordLevel"});
  if (untyped_bpe || model.at("type") == "BPE") return read_bpe(file, name);
  return read_words(file, path.string(), name);
}

void check_tokenizer_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!path_exists(path)) return;
  const Json json = parse_json(read_file(path), path.string());
  const JsonSection config(json, path.string());
  for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token"}) {
    config.expect(key, {false, nullptr});
  }
}

}  // namespace llmc
