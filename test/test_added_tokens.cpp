// Added tokens in the files of a tokenizer, and merges of Windows. The expected tokens are those of
// Hugging Face's `tokenizers`.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/text_cuts.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "test/small_vocabulary.h"
#include "test/support.h"
#include "test/write_file.h"

namespace {

using llmc::Json;
using llmc_test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;

// Ids of kFewMerges: bytes, merges, and 262 for <|endoftext|>.
constexpr std::int32_t kThe = 263, kKing = 264, kX = 265, kTheta = 266;

Json added(const std::string& content, std::int64_t id, bool special, bool lstrip, bool rstrip) {
  return {{"id", id},         {"content", content},     {"single_word", false}, {"lstrip", lstrip},
          {"rstrip", rstrip}, {"normalized", !special}, {"special", special}};
}

// A tokenizer with four added tokens; the ids of the last two are larger by `gap`.
std::unique_ptr<llmc::Tokenizer> make_tokenizer(const TemporaryDirectory& directory, int gap = 0) {
  llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(directory);
  const auto plain = llmc::make_tokenizer(directory.path().string());
  Json json = llmc::parse_json(plain->files().front().text, "tokenizer.json");
  json["added_tokens"].push_back(added("The", kThe, false, false, false));
  json["added_tokens"].push_back(added(" king", kKing, false, true, false));
  json["added_tokens"].push_back(added("<x>", kX + gap, true, true, true));
  json["added_tokens"].push_back(added("Theta", kTheta + gap, false, false, false));
  const std::string path = directory.file("tokenizer.json");
  llmc_test::write(path, json.dump());
  return llmc::make_tokenizer(path);
}

// A tokenizer from a vocab.json, a merges.txt and these other files.
std::unique_ptr<llmc::Tokenizer> make_pair(const TemporaryDirectory& directory,
                                           const std::vector<llmc::TextFile>& others) {
  const llmc_test::SmallVocabulary vocabulary(llmc_test::kFewMerges);
  llmc_test::write(directory.file("vocab.json"), vocabulary.json());
  llmc_test::write(directory.file("merges.txt"), vocabulary.bpe());
  for (const auto& [name, text] : others) llmc_test::write(directory.file(name), text);
  return llmc::make_tokenizer(directory.path().string());
}

// Checks the tokens of texts, without and with special tokens.
void check_tokens(const llmc::Tokenizer& tokenizer) {
  CHECK(tokenizer.encode("The king") == Ids{kThe, kKing});
  CHECK(tokenizer.encode("Theta The") == Ids{kTheta, ' ', kThe});
  CHECK(tokenizer.encode("TheTheta") == Ids{kThe, kTheta});
  CHECK(tokenizer.encode("x  king  y") == Ids{'x', kKing, ' ', ' ', 'y'});
  CHECK(tokenizer.encode("x\xe2\x80\x83 king") == Ids{'x', kKing});  // U+2003 is white space
  CHECK(tokenizer.encode("a<x> b") == Ids{'a', '<', 'x', '>', ' ', 'b'});
  CHECK(tokenizer.encode_with_special("a<x> b") == Ids{'a', kX, 'b'});
  CHECK(tokenizer.encode_with_special(" <x>   zThe") == Ids{kX, 'z', kThe});
  CHECK(tokenizer.encode_with_special("<|endoftext|> king") == Ids{262, kKing});
  CHECK(tokenizer.encode("hello w") == Ids{260, 259});
  CHECK(tokenizer.decode(Ids{kThe, kKing, kX}) == "The king<x>");
  CHECK(tokenizer.vocabulary_size() == 267);
}

TEST_SUITE("added_tokens") {
  TEST_CASE("added tokens that are not special are found in every text") {
    const TemporaryDirectory directory;
    check_tokens(*make_tokenizer(directory));
  }

  TEST_CASE("the files of a tokenizer keep its added tokens") {
    const TemporaryDirectory directory, copy;
    for (const auto& [name, text] : make_tokenizer(directory)->files()) {
      llmc_test::write(copy.file(name), text);
    }
    check_tokens(*llmc::make_tokenizer(copy.path().string()));
  }

  TEST_CASE("gaps between the ids of added tokens are closed, as in transformers") {
    const TemporaryDirectory directory;
    check_tokens(*make_tokenizer(directory, 7));
  }

  TEST_CASE("added tokens are numbered in the order of the file") {
    const TemporaryDirectory directory;
    llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(directory);
    const auto plain = llmc::make_tokenizer(directory.path().string());
    Json json = llmc::parse_json(plain->files().front().text, "tokenizer.json");
    json["added_tokens"].push_back(added("The", kKing, false, false, false));
    json["added_tokens"].push_back(added("king", kThe, false, false, false));
    const std::string path = directory.file("tokenizer.json");
    llmc_test::write(path, json.dump());
    CHECK(llmc::make_tokenizer(path)->encode("Theking") == Ids{kThe, kKing});
  }

  TEST_CASE("tokens that overlap stripped white space or an unused token match the library") {
    const TemporaryDirectory directory;
    llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(directory);
    const auto plain = llmc::make_tokenizer(directory.path().string());
    Json json = llmc::parse_json(plain->files().front().text, "tokenizer.json");
    json["added_tokens"].push_back(added("The", kThe, false, false, true));
    json["added_tokens"].push_back(added(" king", kKing, false, false, false));
    json["added_tokens"].push_back(added("<x>", kX, true, false, false));
    json["added_tokens"].push_back(added("x>", kTheta, false, false, false));
    json["added_tokens"][4]["normalized"] = false;
    const std::string path = directory.file("tokenizer.json");
    llmc_test::write(path, json.dump());
    const auto tokenizer = llmc::make_tokenizer(path);
    CHECK(tokenizer->encode("The  king") == Ids{kThe, kKing});
    CHECK(tokenizer->encode("The  k") == Ids{kThe, 'k'});
    CHECK(tokenizer->encode("<x>") == Ids{'<', 'x', '>'});
    CHECK(tokenizer->encode("x>") == Ids{kTheta});
    CHECK(tokenizer->encode_with_special("<x>") == Ids{kX});
  }

  TEST_CASE("a token that must be a word of its own is not found within a word") {
    const TemporaryDirectory directory, copy;
    llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(directory);
    const auto plain = llmc::make_tokenizer(directory.path().string());
    Json json = llmc::parse_json(plain->files().front().text, "tokenizer.json");
    json["added_tokens"].push_back(added("Th", kThe, false, false, false));
    json["added_tokens"].push_back(added(" Th", kKing, false, false, false));
    json["added_tokens"][1]["single_word"] = true;
    const std::string path = directory.file("tokenizer.json");
    llmc_test::write(path, json.dump());
    const auto first = llmc::make_tokenizer(path);
    for (const auto& [name, text] : first->files()) llmc_test::write(copy.file(name), text);
    const auto second = llmc::make_tokenizer(copy.path().string());
    for (const auto* tokenizer : {first.get(), second.get()}) {
      CHECK(tokenizer->encode("Th") == Ids{kThe});
      CHECK(tokenizer->encode("!Th-") == Ids{'!', kThe, '-'});
      CHECK(tokenizer->encode("\xffTh\xff") == Ids{0xff, kThe, 0xff});
      for (const std::string other : {"a", "1", "_", "\xc3\xa9", "\xe2\x93\x90", "\xcc\x81"}) {
        CAPTURE(other);  // U+00E9, U+24D0 (a circled letter), U+0301 (a mark)
        CHECK(tokenizer->encode("Th" + other)[0] == 'T');
        CHECK(tokenizer->encode(other + "Th").back() == 'h');
      }
      CHECK(tokenizer->encode("a Tha") == Ids{'a', kKing, 'a'});
    }
  }

  TEST_CASE("tokens of added_tokens.json are special if their name or their role is") {
    const TemporaryDirectory directory;
    const std::string tokens = R"({"The": 270, "<k>": 280, "pad": 281, "bos": 282})";
    const auto tokenizer =
        make_pair(directory, {{"added_tokens.json", tokens},
                              {"tokenizer_config.json", R"({"pad_token": "pad"})"},
                              {"special_tokens_map.json", R"({"bos_token": {"content": "bos"}})"}});
    CHECK(tokenizer->encode("The") == Ids{263});  // the ids have no gaps
    CHECK(tokenizer->encode("<k>padbos").size() == 9);
    CHECK(tokenizer->encode_with_special("<k>padbosThe") == Ids{264, 265, 266, 263});
    CHECK(tokenizer->vocabulary_size() == 267);
  }

  TEST_CASE("added_tokens_decoder of tokenizer_config.json replaces added_tokens.json") {
    const Json decoder = {{"264", added("The", 0, false, false, true)},
                          {"263", added("king", 0, true, false, false)}};
    Json config = {{"added_tokens_decoder", decoder}};
    for (auto* list : {"263", "264"}) config["added_tokens_decoder"][list].erase("id");
    const TemporaryDirectory directory;
    const auto tokenizer = make_pair(
        directory, {{"tokenizer_config.json", config.dump()}, {"added_tokens.json", "{\"x\": 9}"}});
    CHECK(tokenizer->encode("The king") == Ids{264, 'k', 'i', 'n', 'g'});
    CHECK(tokenizer->encode_with_special("The king") == Ids{264, 263});
    const std::string path = directory.file("tokenizer_config.json");
    const auto error_of = [&](const std::string& text) {
      llmc_test::write(path, text);
      return llmc_test::complaint([&] { llmc::make_tokenizer(directory.path().string()); });
    };
    CHECK(llmc_test::contains(error_of(R"({"added_tokens_decoder": {"1x": {"content": "a"}}})"),
                              path + ": added_tokens_decoder: the key \"1x\" is not the id"));
    CHECK(llmc_test::contains(error_of(R"({"added_tokens_decoder": {"263": {"content": ""}}})"),
                              path + ": added_tokens_decoder.263.content is empty"));
    CHECK(llmc_test::contains(error_of(R"({"added_tokens_decoder": 5})"),
                              path + ": added_tokens_decoder is 5, not a JSON object"));
  }

  TEST_CASE("vocab.json and merges.txt have the added tokens without tokenizer.json too") {
    const TemporaryDirectory directory, copy;
    for (const auto& [name, text] : make_tokenizer(directory)->files()) {
      if (name != "tokenizer.json") llmc_test::write(copy.file(name), text);
    }
    check_tokens(*llmc::make_tokenizer(copy.path().string()));
  }

  TEST_CASE("an added token with the name of a byte does not change what the byte decodes to") {
    const TemporaryDirectory directory;
    const auto tokenizer =
        make_pair(directory, {{"added_tokens.json", R"({"\u00e9": 233, "\u00e9x": 263})"}});
    const std::string text = "\xe9\x90\x98";  // U+9418
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    CHECK(tokenizer->encode("\xc3\xa9") == Ids{0xe9});
    CHECK(tokenizer->encode("\xc3\xa9x") == Ids{263});
    CHECK(tokenizer->decode(Ids{263}) == "\xc3\xa9x");
    const TemporaryDirectory copy;
    for (const auto& [name, content] : tokenizer->files())
      llmc_test::write(copy.file(name), content);
    const auto second = llmc::make_tokenizer(copy.path().string());
    CHECK(second->decode(Ids{0xe9, 263}) == "\xe9\xc3\xa9x");
  }

  TEST_CASE("texts are not cut if an added token may contain the place") {
    const TemporaryDirectory directory;
    CHECK_FALSE(llmc::cuts_are_exact(*make_tokenizer(directory)));
    const TemporaryDirectory plain;
    llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(plain);
    CHECK(llmc::cuts_are_exact(*llmc::make_tokenizer(plain.path().string())));
  }

  TEST_CASE("merges.txt may have the line ends of Windows") {
    const TemporaryDirectory directory;
    const llmc_test::SmallVocabulary vocabulary(llmc_test::kFewMerges);
    llmc_test::write(directory.file("vocab.json"), vocabulary.json());
    std::string merges = vocabulary.bpe();
    for (std::size_t at = 0; (at = merges.find('\n', at)) != merges.npos; at += 2) {
      merges.insert(at, "\r");
    }
    llmc_test::write(directory.file("merges.txt"), merges);
    CHECK(llmc::make_tokenizer(directory.path().string())->encode("hello w") == Ids{260, 259});
  }
}

}  // namespace
