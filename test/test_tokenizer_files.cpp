// Tokenizers as files: the files of a tokenizer create the same tokenizer, tokenizer.json has the
// meaning that Hugging Face gives it, and damaged or unsupported content is one error that names
// file and key.
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/small_vocabulary.h"
#include "test/support.h"

TEST_SUITE_BEGIN("tokenizer_files");

namespace {

using llmc::Json;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::kFewMerges;
using llmc_test::TemporaryDirectory;
using llmc_test::write;
using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;
using Change = std::function<void(Json&)>;

void save(const llmc::Tokenizer& tokenizer, const TemporaryDirectory& at) {
  for (const auto& [name, text] : tokenizer.files()) write(at.file(name), text);
}

// The tokenizer.json of kFewMerges, parsed.
Json few_merges_json() {
  const TemporaryDirectory directory;
  llmc_test::SmallVocabulary(kFewMerges).save(directory);
  const auto tokenizer = llmc::make_tokenizer(directory.path().string());
  return llmc::parse_json(tokenizer->files().front().text, "tokenizer.json");
}

Json words_json() {
  return llmc::parse_json(llmc::WordTokenizer(Strings{"a", "b"}, "list").files().front().text, "");
}

// An entry of added_tokens.
Json added_token(const std::string& content, std::int64_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Pre-tokenizers.
Json sequence(const std::vector<Json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}
Json split(const std::string& pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}
Json byte_level_alone() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

const std::string kText = "hello w\xc3\xa9 <|endoftext|> \xff\xc3 llo\n";

}  // namespace

TEST_CASE("the files of a tokenizer create the same tokenizer") {
  const TemporaryDirectory source;
  llmc_test::SmallVocabulary(kFewMerges).save(source);
  for (const std::string& spec : {source.path().string(), std::string("bytes")}) {
    CAPTURE(spec);
    const auto tokenizer = llmc::make_tokenizer(spec);
    const TemporaryDirectory copy;
    save(*tokenizer, copy);
    // The directory, then tokenizer.json by its name; below, the directory with only the pair of
    // files.
    const std::string whole = copy.file("tokenizer.json");
    for (const std::string& from : {copy.path().string(), whole}) {
      const auto second = llmc::make_tokenizer(from);
      CHECK(second->name() == from);
      CHECK(second->vocabulary_size() == tokenizer->vocabulary_size());
      CHECK(second->end_of_text() == tokenizer->end_of_text());
      CHECK(second->encode(kText) == tokenizer->encode(kText));
      CHECK(second->decode(second->encode(kText)) == kText);
      CHECK(second->encode_with_special(kText) == tokenizer->encode_with_special(kText));
      CHECK(second->files().front().text == tokenizer->files().front().text);
    }
    std::filesystem::remove(whole);
    const auto pair = llmc::make_tokenizer(copy.path().string());
    CHECK(pair->encode_with_special(kText) == tokenizer->encode_with_special(kText));
    CHECK(pair->files().front().text == tokenizer->files().front().text);
  }
}

TEST_CASE("the files of a word list create the same tokenizer") {
  const llmc::WordTokenizer words(Strings{"the", "<unk>", "na\xc3\xafve", "\"", "<|endoftext|>"},
                                  "list");
  const TemporaryDirectory copy;
  save(words, copy);
  const auto second = llmc::make_tokenizer(copy.path().string());
  CHECK(second->name() == copy.path().string());
  CHECK(second->vocabulary_size() == 5);
  CHECK(second->end_of_text() == 4);
  CHECK(second->encode("na\xc3\xafve\t<unk> \" <|endoftext|>\nthe") == Ids{2, 1, 3, 4, 0});
  CHECK(second->decode(Ids{0, 2}) == "the na\xc3\xafve");
  const std::string unknown = complaint([&] { second->encode("the dog"); });
  CHECK(contains(unknown, "\"dog\" is not in the word list " + copy.file("tokenizer.json")));
  CHECK(second->files().front().text == words.files().front().text);
}

TEST_CASE("only encode_with_special returns special tokens") {
  const llmc::ByteTokenizer bytes;
  CHECK(bytes.encode_with_special("!<|endoftext|>!") == Ids{0, 256, 0});
  CHECK(bytes.encode_with_special("<|endoftext|") == bytes.encode("<|endoftext|"));
  CHECK(bytes.encode_with_special("").empty());

  const TemporaryDirectory directory;
  const std::string path = directory.file("tokenizer.json");
  Json json = few_merges_json();
  // The longest special token that matches at a position wins, whatever the order in the file. A
  // special token may be any text.
  for (const Json& token :
       {added_token("<a>b", 263), added_token("<a>", 264), added_token(" \xe6\x9d\xb1 ", 265)}) {
    json["added_tokens"].push_back(token);
  }
  write(path, json.dump());
  const auto tokenizer = llmc::make_tokenizer(path);
  CHECK(tokenizer->vocabulary_size() == 266);
  CHECK(tokenizer->encode_with_special("<a>hello<a>b<a> \xe6\x9d\xb1  w<|endoftext|>") ==
        Ids{264, 260, 263, 264, 265, 259, 262});
  CHECK(tokenizer->decode(Ids{265, 263}) == " \xe6\x9d\xb1 <a>b");
  CHECK(tokenizer->encode("<a>b") == Ids{'<', 'a', '>', 'b'});
  const std::string all = "<a>b<|endoftext|> \xe6\x9d\xb1 ";
  for (const std::int32_t id : tokenizer->encode(all)) CHECK(id < 256);
  // The files of this tokenizer create the same tokenizer.
  const TemporaryDirectory copy;
  save(*tokenizer, copy);
  const auto second = llmc::make_tokenizer(copy.path().string());
  CHECK(second->encode_with_special(all) == Ids{263, 262, 265});
  CHECK(second->vocabulary_size() == 266);
}

TEST_CASE("equivalent forms of tokenizer.json are accepted") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokenizer.json");
  const Json json = few_merges_json();
  const Strings merges = {"h e", "l l", "he ll", "\xc4\xa0 w", "hell o", "\xc3\x83 \xc2\xa9"};
  const Change changes[] = {
      [](Json&) {}, [&](Json& j) { j["model"]["merges"] = merges; },
      // GPT-2's own file is older than these keys.
      [&](Json& j) { j["model"]["merges"] = merges, j["model"].erase("type"); },
      [](Json& j) { j["pre_tokenizer"].erase("use_regex"); },
      [](Json& j) { j["model"].erase("ignore_merges"), j["model"].erase("byte_fallback"); },
      [](Json& j) { j.erase("truncation"), j.erase("padding"), j.erase("post_processor"); },
      [](Json& j) { j["model"]["continuing_subword_prefix"] = nullptr; },
      // The settings of an earlier call.
      [](Json& j) {
        j["truncation"] = {{"max_length", 8}}, j["padding"] = {{"strategy", {{"Fixed", 32}}}};
      },
      [](Json& j) { j["pre_tokenizer"] = sequence({j["pre_tokenizer"]}); },
      [](Json& j) {
        j["pre_tokenizer"] = sequence({split(kGpt2Pattern), byte_level_alone()});
      },
      [](Json& j) {
        j["post_processor"] = {
            {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}};
      },
      [](Json& j) {
        j["post_processor"] = {{"type", "TemplateProcessing"}, {"special_tokens", Json::object()}};
      }};
  for (const Change& change : changes) {
    Json changed_json = json;
    change(changed_json);
    write(path, changed_json.dump());
    const auto tokenizer = llmc::make_tokenizer(path);
    CHECK(tokenizer->encode("hello w") == Ids{260, 259});
    CHECK(tokenizer->end_of_text() == 262);
  }
}

namespace {

// A change to a tokenizer.json and the error that it must cause.
using Fault = std::pair<Change, std::string>;

// Keys that are missing, unknown, or ask for a feature that is not supported.
std::vector<Fault> faults_of_keys() {
  return {
      {[](Json& j) { j = Json::array(); }, " is [], not a JSON object"},
      {[](Json& j) { j.erase("model"); }, " is not a tokenizer.json: it has no \"model\""},
      {[](Json& j) { j["model"] = 5; }, ": model is 5, not a JSON object"},
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, ": model.type is \"Unigram\""},
      {[](Json& j) { j["model"].erase("vocab"); }, ": model has no \"vocab\""},
      {[](Json& j) { j["model"].erase("merges"); }, ": model has no \"merges\""},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, ": model.dropout is 0.1"},
      {[](Json& j) { j["model"]["ignore_merges"] = true; }, ": model.ignore_merges is true"},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
       ": model.end_of_word_suffix is \"</w>\""},
      {[](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
       ": model.continuing_subword_prefix is \"##\""},
      {[](Json& j) { j["model"]["new"] = 1; }, ": model.new is 1: this key is not supported"},
      {[](Json& j) { j["new"] = 1; }, ": new is 1: this key is not supported"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "NFC"}};
       },
       ": normalizer is {\"type\":\"NFC\"}"},
      {[](Json& j) { j.erase("pre_tokenizer"); }, " has no \"pre_tokenizer\""},
      {[](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; },
       ": pre_tokenizer.type is \"Whitespace\""},
      {[](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; },
       ": pre_tokenizer.add_prefix_space is true"},
      {[](Json& j) { j["pre_tokenizer"]["use_regex"] = false; },
       ": pre_tokenizer.use_regex is false"},
      {[](Json& j) {
         j["pre_tokenizer"] = sequence({j["pre_tokenizer"], j["pre_tokenizer"]});
       },
       ": pre_tokenizer.pretokenizers[0].type is \"ByteLevel\""},
      {[](Json& j) { j["pre_tokenizer"] = sequence({}); },
       ": pre_tokenizer.pretokenizers is not a list of ByteLevel, or of Split and ByteLevel"},
      {[](Json& j) {
         j["pre_tokenizer"] = sequence({split("\\s+"), byte_level_alone()});
       },
       ": pre_tokenizer.pretokenizers[0].pattern is {\"Regex\":\"\\\\s+\"}"},
      {[](Json& j) {
         j["pre_tokenizer"] = sequence({split(kGpt2Pattern), j["pre_tokenizer"]});
       },
       ": pre_tokenizer.pretokenizers[1].use_regex is true"},
      {[](Json& j) { j["decoder"] = nullptr; }, " has no \"decoder\""},
      {[](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       ": post_processor.type is \"BertProcessing\""},
      {[](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}, {"special_tokens", {{"<s>", 1}}}};
       },
       ": post_processor.special_tokens is {\"<s>\":1}"}};
}

// Tokens and merges that contradict each other.
std::vector<Fault> faults_of_tokens(const std::string& path) {
  return {
      {[](Json& j) { j["added_tokens"] = 3; }, ": added_tokens is not a list"},
      {[](Json& j) { j["added_tokens"][0] = 3; }, ": added_tokens[0] is 3, not a JSON object"},
      {[](Json& j) { j["added_tokens"][0]["single_word"] = "no"; },
       ": added_tokens[0].single_word is not true or false"},
      {[](Json& j) { j["added_tokens"][0]["lstrip"] = 1; },
       ": added_tokens[0].lstrip is not true or false"},
      {[](Json& j) { j["added_tokens"][0]["id"] = 16777216; },
       ": added_tokens[0].id: the id of \"<|endoftext|>\" is 16777216"},
      {[](Json& j) { j["added_tokens"][0]["content"] = ""; }, ": added_tokens[0].content is empty"},
      {[](Json& j) { j["added_tokens"][0].erase("id"); }, ": added_tokens[0] has no \"id\""},
      {[](Json& j) { j["added_tokens"][0]["id"] = 261; },
       ": added_tokens: the id of \"<|endoftext|>\" is 261, but in " + path +
           ": model.vocab it is 262"},
      {[](Json& j) { j["added_tokens"].push_back(added_token("<s>", 7)); },
       ": added_tokens: the id of \"<s>\" is 7, which is also the id of another token"},
      {[](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); },
       ": added_tokens: a token is listed twice"},
      {[](Json& j) { j["added_tokens"].push_back(added_token("ll", 257)); },
       ": added_tokens: \"ll\" is also the result of a merge"},
      {[](Json& j) { j["added_tokens"].push_back(added_token("q", 'q')); },
       ": model.vocab has no token for the byte 113"},
      {[](Json& j) { j["model"]["vocab"] = Json::array(); },
       ": model.vocab is not a JSON object of tokens"},
      {[](Json& j) { j["model"]["vocab"]["ll"] = 256; }, "which is also the id of another token"},
      {[](Json& j) { j["model"]["vocab"]["ll"] = 1000; },
       ": model.vocab: the id of \"ll\" is 1000, but there are only 263 tokens"},
      {[](Json& j) { j["model"]["merges"] = "l l"; }, ": model.merges is not a list"},
      {[](Json& j) { j["model"]["merges"][1] = {"l"}; },
       ": model.merges, merge 1: [\"l\"] is not two tokens"},
      {[](Json& j) { j["model"]["merges"][1] = "ll"; },
       ": model.merges, merge 1: \"ll\" is not two tokens"},
      {[](Json& j) {
         j["model"]["merges"][1] = {"l", "m"};
       },
       ": model.merges, merge 1: \"lm\" is not in " + path + ": model.vocab"},
      {[](Json& j) {
         j["model"]["merges"][1] = {"h", "e"};
       },
       ": model.merges, merge 1: \"h e\" is listed twice"},
      {[](Json& j) { j["model"]["merges"].erase(5); },
       ": model.merges is truncated: no merge produces"}};
}

}  // namespace

TEST_CASE("an unsupported setting is an error that names its key") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokenizer.json");
  const auto error_of = [&](Json json, const Change& change) {
    change(json);
    write(path, json.dump());
    return complaint([&] { llmc::make_tokenizer(directory.path().string()); });
  };
  CHECK(error_of(few_merges_json(), [](Json&) {}).empty());
  CHECK(error_of(words_json(), [](Json&) {}).empty());
  for (const auto& faults : {faults_of_keys(), faults_of_tokens(path)}) {
    for (const auto& [change, phrase] : faults) {
      CAPTURE(phrase);
      CAPTURE(error_of(few_merges_json(), change));
      CHECK(contains(error_of(few_merges_json(), change), path));
      CHECK(contains(error_of(few_merges_json(), change), phrase));
    }
  }
  const std::vector<Fault> words = {
      {[](Json& j) { j["pre_tokenizer"]["pattern"]["Regex"] = "\\s+"; }, ": pre_tokenizer is {"},
      {[](Json& j) {
         j["decoder"] = {{"type", "ByteLevel"}};
       },
       ": decoder is {"},
      {[](Json& j) { j["added_tokens"].push_back(added_token("<s>", 2)); }, ": added_tokens is [{"},
      {[](Json& j) { j["model"]["unk_token"] = "b"; }, ": model.unk_token is the word \"b\""},
      {[](Json& j) { j["model"].erase("unk_token"); }, ": model has no \"unk_token\""},
      {[](Json& j) { j["model"]["vocab"]["b"] = 2; },
       ": model.vocab: the id of \"b\" is 2, but there are only 2 words"},
      {[](Json& j) { j["model"]["vocab"]["b"] = 0; }, "is 0, which is also the id of another word"},
      {[](Json& j) { j["model"]["vocab"][""] = 2; },
       ": model.vocab: the id of \"\" belongs to an empty word"},
      {[](Json& j) { j["model"]["vocab"] = Json::object(); }, "has no words"},
      {[](Json& j) {
         j["model"]["vocab"] = {{"a b", 0}};
       },
       "\"a b\" contains white space"}};
  for (const auto& [change, phrase] : words) {
    CAPTURE(phrase);
    CAPTURE(error_of(words_json(), change));
    CHECK(contains(error_of(words_json(), change), path));
    CHECK(contains(error_of(words_json(), change), phrase));
  }
}

TEST_CASE("a damaged file is an error that names it") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokenizer.json");
  const auto error_of = [&](const std::string& text) {
    write(path, text);
    return complaint([&] { llmc::make_tokenizer(path); });
  };
  const std::string whole = few_merges_json().dump();
  for (std::size_t length = 0; length < whole.size();
       length += llmc_test::tiny_shapes() ? 997 : 41) {
    CAPTURE(length);
    CHECK(contains(error_of(whole.substr(0, length)), path + " is not valid JSON"));
  }
  CHECK(contains(error_of(whole + whole), path + " is not valid JSON"));
  std::string damaged = whole;
  damaged[damaged.find("endoftext")] = '\xff';
  CHECK(contains(error_of(damaged), path + " is not valid JSON"));
  CHECK(
      contains(error_of("{\"model\": 1, \"model\": 2}"), path + " holds the key \"model\" twice"));
  CHECK(contains(complaint([&] { llmc::make_tokenizer(directory.file("no.json")); }),
                 "no tokenizer \"" + directory.file("no.json")));
  // A link to itself: the file system cannot determine whether it exists.
  const TemporaryDirectory linked;
  std::filesystem::create_symlink("encoder.json", linked.file("encoder.json"));
  CHECK(contains(complaint([&] { llmc::make_tokenizer(linked.path().string()); }),
                 "cannot examine " + linked.file("encoder.json")));
}

TEST_CASE("added_tokens.json and tokenizer_config.json are read too") {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  const llmc_test::SmallVocabulary vocabulary(kFewMerges);
  write(directory.file("vocab.json"), vocabulary.json());
  write(directory.file("merges.txt"), vocabulary.bpe());
  const std::string added_tokens = directory.file("added_tokens.json");
  write(added_tokens, "{\"[new]\": 263}");
  const auto tokenizer = llmc::make_tokenizer(path);
  CHECK(tokenizer->vocabulary_size() == 264);
  CHECK(tokenizer->encode_with_special("hello[new]<|endoftext|>") == Ids{260, 263, 262});
  write(added_tokens, "{\"[new]\": 262}");
  CHECK(contains(complaint([&] { llmc::make_tokenizer(path); }),
                 "the id of \"[new]\" is 262, which is also the id of another token"));
  std::filesystem::remove(added_tokens);

  const std::string config = directory.file("tokenizer_config.json");
  for (const std::string key : {"add_prefix_space", "add_bos_token", "add_eos_token"}) {
    write(config, "{\"" + key + "\": true}");
    CHECK(
        contains(complaint([&] { llmc::make_tokenizer(path); }), config + ": " + key + " is true"));
    write(config, "{\"" + key + "\": false}");
    CHECK(complaint([&] { llmc::make_tokenizer(path); }).empty());
  }
  // tokenizer.json takes precedence over the pair of files.
  std::filesystem::remove(config);
  write(directory.file("tokenizer.json"), "{}");
  CHECK(contains(complaint([&] { llmc::make_tokenizer(path); }), "tokenizer.json"));
}

TEST_SUITE_END();
