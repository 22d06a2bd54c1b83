// Tokenizers: known ids, byte pairs against a short and slow definition, texts of any bytes, and
// invalid files of every kind.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/small_vocabulary.h"
#include "test/support.h"

TEST_SUITE_BEGIN("tokenizer");

namespace {

using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::kFewMerges;
using llmc_test::Merges;
using llmc_test::TemporaryDirectory;
using llmc_test::write;
using Vocabulary = llmc_test::SmallVocabulary;

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

// The definition: repeatedly joins the first pair of neighbours to which the earliest possible
// merge applies.
Ids encode_by_definition(const Vocabulary& vocabulary, const std::string& piece) {
  Strings parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const auto& [left, right] : vocabulary.merges) {
      for (std::size_t i = 0; !has_changed && i + 1 < parts.size(); ++i) {
        if (parts[i] != left || parts[i + 1] != right) continue;
        parts[i] += right;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        has_changed = true;
      }
      if (has_changed) break;
    }
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.ids.at(part));
  return ids;
}

Strings pieces(const std::string& text) {
  Strings out;
  llmc::Gpt2Splitter().split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

}  // namespace

TEST_CASE("bytes have the ids of GPT-2") {
  const llmc::ByteTokenizer tokenizer;
  CHECK(tokenizer.vocabulary_size() == 257);
  CHECK(tokenizer.end_of_text() == 256);
  CHECK(tokenizer.name() == "bytes");
  CHECK(tokenizer.encode("!~\xa1\xac\xae\xff") == Ids{0, 93, 94, 105, 106, 187});
  CHECK(tokenizer.encode(std::string("\0 \x7f\xa0\xad", 5)) == Ids{188, 220, 221, 254, 255});

  const Ids ids = tokenizer.encode(all_bytes());
  CHECK(tokenizer.decode(ids) == all_bytes());
  CHECK(std::set<std::int32_t>(ids.begin(), ids.end()).size() == 256);
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.decode(Ids{39, 256}) == "H<|endoftext|>");
  CHECK(tokenizer.encode("<|endoftext|>").size() == 13);
  for (const std::int32_t invalid_id : {-1, 257}) {
    CHECK(contains(complaint([&] { tokenizer.decode(Ids{invalid_id}); }),
                   "outside the vocabulary of 257"));
  }
}

TEST_CASE("a word list encodes words that are separated by white space") {
  const TemporaryDirectory directory;
  const std::string list = directory.file("words.txt");
  for (const std::string end : {"\n", ""}) {
    write(list, "the\ncat\n.\nna\xc3\xafve" + end);
    const llmc::WordTokenizer tokenizer(list);
    CHECK(tokenizer.vocabulary_size() == 4);
    CHECK(tokenizer.encode(" the\tcat\r\n . \n\nna\xc3\xafve") == Ids{0, 1, 2, 3});
    CHECK(tokenizer.decode(Ids{3, 0, 1, 2}) == "na\xc3\xafve the cat .");
    CHECK(tokenizer.encode(" \n").empty());
    CHECK(tokenizer.decode(Ids{}).empty());
    CHECK(!tokenizer.end_of_text());
    CHECK(tokenizer.name() == "words:" + list);
    const std::string unknown = complaint([&] { tokenizer.encode("the cat\nthe dog ."); });
    CHECK(contains(unknown, "line 2"));
    CHECK(contains(unknown, "\"dog\""));
    CHECK(contains(unknown, list));
    CHECK(contains(complaint([&] { tokenizer.decode(Ids{4}); }), "outside the vocabulary of 4"));
  }
  const llmc::WordTokenizer in_memory(Strings{"a", "<|endoftext|>"}, "two words");
  CHECK(in_memory.end_of_text() == 1);
  CHECK(contains(complaint([&] { in_memory.encode("b"); }), "two words"));
}

TEST_CASE("the error for an invalid word list names the line and the problem") {
  const TemporaryDirectory directory;
  const std::string list = directory.file("words.txt");
  const auto error_of = [&](const std::string& text) {
    write(list, text);
    return complaint([&] { llmc::make_tokenizer("words:" + list); });
  };
  for (const std::string text : {"a\nb\n", "a\r\nb\r\n"}) {
    CHECK(error_of(text).empty());
    CHECK(llmc::make_tokenizer("words:" + list)->encode("b a\r\n") == Ids{1, 0});
  }
  const std::vector<std::pair<std::string, std::string>> invalid = {
      {"", " is empty"},
      {"a\n\nb\n", ", line 2: the line is empty"},
      {"\n", ", line 1: the line is empty"},
      {"a\nb c\n", ", line 2: \"b c\" contains white space"},
      {"a\r\r\n", ", line 1: \"a?\" contains white space"},
      {"a\nb\na\n", ", line 3: the word \"a\" is repeated"},
      {"a\n\xc3\n", ", line 2: \"?\" is not UTF-8"}};
  for (const auto& [text, phrase] : invalid) {
    CAPTURE(text);
    CHECK(contains(error_of(text), list + phrase));
  }
  CHECK(contains(complaint([&] { llmc::make_tokenizer("words:" + list + ".no"); }), list + ".no"));
  CHECK(contains(complaint([&] { llmc::WordTokenizer(Strings{}, "none"); }), "none has no words"));
}

TEST_CASE("a tokenizer is created from its name") {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  CHECK(llmc::make_tokenizer("bytes")->vocabulary_size() == 257);
  for (const std::string spec : {"", "byte", "/no/such/folder"}) {
    const std::string message = complaint([&] { llmc::make_tokenizer(spec); });
    CHECK(contains(message, "no tokenizer \"" + spec + "\""));
    CHECK(contains(message, "words:FILE, a tokenizer.json, or a directory"));
  }
  CHECK(contains(complaint([&] { llmc::make_tokenizer(path); }), path + " has no tokenizer files"));

  Vocabulary(kFewMerges).save(directory);
  CHECK(
      contains(complaint([&] { llmc::make_tokenizer(directory.file("vocab.bpe")); }), "is a file"));
  CHECK(llmc::make_tokenizer(path)->name() == path);
  std::filesystem::remove(directory.file("encoder.json"));
  CHECK(contains(complaint([&] { llmc::make_tokenizer(path); }), "vocab.bpe but no encoder.json"));
  write(directory.file("vocab.json"), Vocabulary(kFewMerges).json());
  std::filesystem::rename(directory.file("vocab.bpe"), directory.file("merges.txt"));
  CHECK(llmc::make_tokenizer(path)->vocabulary_size() == 263);
}

TEST_CASE("a text is split into the pieces of GPT-2's pattern") {
  CHECK(pieces("").empty());
  CHECK(pieces("Hello, world!") == Strings{"Hello", ",", " world", "!"});
  CHECK(pieces("they'd've 'LL o'er") == Strings{"they", "'d", "'ve", " '", "LL", " o", "'", "er"});
  CHECK(pieces("we're I'm it's don't she'll") ==
        Strings{"we", "'re", " I", "'m", " it", "'s", " don", "'t", " she", "'ll"});
  CHECK(pieces("a1b 22\xc2\xb2 x") == Strings{"a", "1", "b", " 22\xc2\xb2", " x"});
  CHECK(pieces("a   b\n\n c \t") == Strings{"a", "  ", " b", "\n\n", " c", " \t"});
  CHECK(pieces("\xc3\xa9t\xc3\xa9 \xe6\x9d\xb1\xe4\xba\xac\xef\xbc\x81") ==
        Strings{"\xc3\xa9t\xc3\xa9", " \xe6\x9d\xb1\xe4\xba\xac", "\xef\xbc\x81"});
  // U+0085, U+2003 and U+3000 are white space; U+180E, U+200B and U+001C are not.
  CHECK(pieces("a\xc2\x85\xe2\x80\x83\xe3\x80\x80"
               "b") == Strings{"a", "\xc2\x85\xe2\x80\x83", "\xe3\x80\x80", "b"});
  for (const std::string symbol : {"\xe1\xa0\x8e", "\xe2\x80\x8b", "\x1c"}) {
    CHECK(pieces("a " + symbol + ".'ll") == Strings{"a", " " + symbol + ".'", "ll"});
  }
}

TEST_CASE("bytes that are not UTF-8 are split like other symbols") {
  CHECK(pieces("a\xff!b") == Strings{"a", "\xff!", "b"});
  CHECK(pieces(" \xff"
               " 1") == Strings{" \xff", " 1"});
  // Truncated characters, a stray continuation byte, overlong forms, a surrogate, and forms beyond
  // U+10FFFF.
  for (const std::string invalid_bytes :
       {"\xc3", "\xa9", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98"}) {
    CAPTURE(invalid_bytes);
    CHECK(pieces("x" + invalid_bytes + "y") == Strings{"x", invalid_bytes, "y"});
  }
  // The valid neighbours of these forms are letters, except U+10FFFF below: it is unassigned and
  // counts as a symbol.
  for (const std::string valid : {"\xc3\xa9", "\xe0\xa6\x85", "\xed\x9e\xa3", "\xf0\x90\x80\x80"}) {
    CAPTURE(valid);
    CHECK(pieces("x" + valid + "y") == Strings{"x" + valid + "y"});
  }
  CHECK(pieces("x\xf4\x8f\xbf\xbfy") == Strings{"x", "\xf4\x8f\xbf\xbf", "y"});
}

TEST_CASE("merges are applied by rank, not by position") {
  const TemporaryDirectory directory;
  const Vocabulary vocabulary(kFewMerges);
  vocabulary.save(directory);
  const llmc::BpeTokenizer tokenizer(directory.path());
  CHECK(tokenizer.vocabulary_size() == 263);
  CHECK(tokenizer.end_of_text() == 262);
  CHECK(tokenizer.encode("hello") == Ids{260});
  CHECK(tokenizer.encode("hell llo") == Ids{258, ' ', 257, 'o'});
  CHECK(tokenizer.encode("lll") == Ids{257, 'l'});
  CHECK(tokenizer.encode("x world") == Ids{'x', 259, 'o', 'r', 'l', 'd'});
  CHECK(tokenizer.encode("\xc3\xa9") == Ids{261});
  // One byte is not a letter: the merge of two bytes does not cross the edge of a piece.
  CHECK(tokenizer.encode("\xc3 \xa9") == Ids{0xc3, ' ', 0xa9});
  CHECK(tokenizer.decode(Ids{260, 259, 262}) == "hello w<|endoftext|>");
  CHECK(tokenizer.encode("").empty());
  for (const std::int32_t id : tokenizer.encode("<|endoftext|>")) CHECK(id != 262);
  CHECK(tokenizer.decode(tokenizer.encode(all_bytes())) == all_bytes());
  CHECK(contains(complaint([&] { tokenizer.decode(Ids{263}); }), "outside the vocabulary of 263"));
}

TEST_CASE("byte pair encoding matches the definition") {
  std::mt19937_64 bits(7);
  const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(bits() % n); };
  for (int round = 0; round < (llmc_test::tiny_shapes() ? 3 : 30); ++round) {
    Strings tokens = {"a", "b", "c"};
    Merges merges;
    while (merges.size() < 25) {
      const std::pair merge(tokens[below(tokens.size())], tokens[below(tokens.size())]);
      const std::string whole = merge.first + merge.second;
      if (whole.size() > 12 || std::find(tokens.begin(), tokens.end(), whole) != tokens.end())
        continue;
      merges.push_back(merge);
      tokens.push_back(whole);
    }
    const TemporaryDirectory directory;
    const Vocabulary vocabulary(merges);
    vocabulary.save(directory);
    const llmc::BpeTokenizer tokenizer(directory.path());
    std::string text;
    Ids expected;
    for (int word = 0; word < 40; ++word) {
      std::string piece = word == 0 ? "" : " ";
      for (std::size_t length = 1 + below(20); length > 0; --length) piece += "abc"[below(3)];
      CAPTURE(piece);
      const Ids ids = encode_by_definition(vocabulary, piece);
      CHECK(tokenizer.encode(piece) == ids);
      // Each piece after the first occurs twice in the text: the second time it is looked up.
      for (int time = 0; time < (word == 0 ? 1 : 2); ++time) {
        text += piece;
        expected.insert(expected.end(), ids.begin(), ids.end());
      }
    }
    CHECK(tokenizer.encode(text) == expected);
    CHECK(tokenizer.decode(expected) == text);
  }
}

TEST_CASE("a word of any length is encoded") {
  const TemporaryDirectory directory;
  Vocabulary({{"a", "a"}, {"aa", "aa"}}).save(directory);
  const llmc::BpeTokenizer tokenizer(directory.path());
  const std::size_t n = llmc_test::tiny_shapes() ? 10'000 : 1'000'000;
  CHECK(tokenizer.encode(std::string(4 * n + 3, 'a')).size() == n + 2);
  const Ids spaces = tokenizer.encode(std::string(n, ' ') + "a");
  CHECK(spaces.size() == n + 1);
  CHECK(tokenizer.decode(tokenizer.encode(std::string(n, '\xff'))) == std::string(n, '\xff'));
}

TEST_CASE("the error for an invalid vocabulary names the file and the problem") {
  const TemporaryDirectory directory;
  const Vocabulary vocabulary(kFewMerges);
  const std::string json = vocabulary.json();
  const std::string bpe = vocabulary.bpe();
  const std::string encoder = directory.file("encoder.json");
  const std::string merges = directory.file("vocab.bpe");
  const auto error_of = [&](const std::string& encoder_text, const std::string& bpe_text) {
    write(encoder, encoder_text);
    write(merges, bpe_text);
    return complaint([&] { llmc::BpeTokenizer(directory.path()); });
  };
  const auto replace_text = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
  };
  CHECK(error_of(json, bpe).empty());
  CHECK(error_of(json, bpe.substr(0, bpe.size() - 1)).empty());   // no line end at the end
  CHECK(error_of(json, bpe.substr(bpe.find('\n') + 1)).empty());  // no version line

  const std::string ll = "\"ll\": 257";
  const Strings invalid_encoders[] = {
      {"", encoder + " is not valid JSON"},
      {json.substr(0, json.size() / 2), encoder + " is not valid JSON"},
      {"[1, 2]", encoder + " is not a JSON object"},
      {"{}", encoder + " has no token for the byte 0"},
      {replace_text(json, ll, "\"ll\": -1"), "the id of \"ll\" is -1, not an integer"},
      {replace_text(json, ll, "\"ll\": \"x\""), "the id of \"ll\" is \"x\", not an integer"},
      {replace_text(json, ll, "\"ll\": 263"),
       "the id of \"ll\" is 263, but there are only 263 tokens"},
      {replace_text(json, ll, "\"ll\": 256"), "is 256, which is also the id of another token"},
      {replace_text(json, ll, ll + ", " + ll), "the key \"ll\" twice"},
      {replace_text(json, ll, "\"l l\": 257"), "the id of \"l l\" belongs to a name"},
      {replace_text(json, ll, "\"\": 257"), "the id of \"\" belongs to a name"},
      {replace_text(json, ll, "\"\xe6\x9d\xb1\": 257"),
       "belongs to a name that does not stand for bytes"},
      {replace_text(json, "\"q\": 113", "\"qq\": 113"), encoder + " has no token for the byte 113"},
      {replace_text(json, ll, "\"lx\": 257"), merges + ", line 3: \"ll\" is not in " + encoder}};
  for (const Strings& invalid : invalid_encoders) {
    CAPTURE(invalid[1]);
    CHECK(contains(error_of(invalid[0], bpe), invalid[1]));
    CHECK(contains(error_of(invalid[0], bpe), directory.path().string()));
  }
  const Strings invalid_merges[] = {
      {"", merges + " is truncated: no merge produces \"he\", token 256"},
      {bpe.substr(0, bpe.find("hell o")),
       merges + " is truncated: no merge produces \"hello\", token 260"},
      {replace_text(bpe, "l l\n", "l l\nl l\n"), merges + ", line 4: \"l l\" is listed twice"},
      {replace_text(bpe, "l l\n", "ll\n"), merges + ", line 3: \"ll\" is not two tokens"},
      {replace_text(bpe, "l l\n", "l l l\n"), merges + ", line 3: \"l l l\" is not two tokens"},
      {replace_text(bpe, "l l\n", "\nl l\n"), merges + ", line 3: \"\" is not two tokens"},
      {replace_text(bpe, "l l\n", "l m\n"), merges + ", line 3: \"lm\" is not in " + encoder},
      {replace_text(bpe, "l l\n", "l l\r\r\n"), merges + ", line 3: \"l?\" is not in " + encoder},
      {bpe + bpe, merges + ", line 8: \"#version:\" is not in"}};
  for (const Strings& invalid : invalid_merges) {
    CAPTURE(invalid[1]);
    CAPTURE(error_of(json, invalid[0]));
    CHECK(contains(error_of(json, invalid[0]), invalid[1]));
  }
}

TEST_CASE("tokens match those of GPT-2") {
  const std::string data = llmc_test::data_dir();
  const std::string gpt2 = data + "/gpt2";
  if (data.empty() || !std::filesystem::exists(gpt2 + "/encoder.json")) {
    return llmc_test::skip("GPT-2's vocabulary is missing");
  }
  const auto tokenizer = llmc::make_tokenizer(gpt2);
  CHECK(tokenizer->vocabulary_size() == 50257);
  CHECK(tokenizer->end_of_text() == 50256);
  // Ids from tiktoken 0.14.
  const std::vector<std::pair<std::string, Ids>> examples = {
      {"Hello, world!", {15496, 11, 995, 0}},
      {"First Citizen:\nBefore we proceed", {5962, 22307, 25, 198, 8421, 356, 5120}},
      {"  two  spaces   and\n\n\nlines \t ",
       {220, 734, 220, 9029, 220, 220, 290, 628, 198, 6615, 220, 197, 220}},
      {"I'll say it's theirs, they'd've; WE'LL",
       {40, 1183, 910, 340, 338, 22021, 11, 484, 1549, 1053, 26, 12887, 6, 3069}},
      {"aaaaaaaaaaaaaaaaaaaa", {24794, 24794, 24794, 24794, 24794}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
      {"3.14159 and 1234567", {18, 13, 1415, 19707, 290, 17031, 2231, 3134}},
      {"Z\xc3\xbcrich \xe2\x80\x93 \xe6\x9d\xb1\xe4\xba\xac \xf0\x9f\x98\x80",
       {57, 9116, 7527, 784, 10545, 251, 109, 12859, 105, 30325, 222}},
      {"a\xe1\xa0\x8e'll b\xe3\x80\x80\xe2\x80\x83"
       "c",
       {64, 157, 254, 236, 6, 297, 275, 5099, 222, 447, 225, 66}},
      {"x\x1c'll", {87, 216, 6, 297}},
      {"na\xc3\xafve caf\xc3\xa9", {2616, 38776, 40304}},
      {"for (int i = 0; i < n; ++i) {",
       {1640, 357, 600, 1312, 796, 657, 26, 1312, 1279, 299, 26, 19969, 72, 8, 1391}},
      {"antidisestablishmentarianism", {415, 29207, 44390, 3699, 1042}},
      {"\r\n\r\n x", {201, 198, 201, 198, 2124}},
      {std::string("\0\x7f", 2), {188, 221}}};
  for (const auto& [text, ids] : examples) {
    CAPTURE(text);
    CHECK(tokenizer->encode(text) == ids);
    CHECK(tokenizer->decode(ids) == text);
  }
  CHECK(tokenizer->decode(Ids{50256}) == "<|endoftext|>");

  const std::string shakespeare = data + "/text/tinyshakespeare.txt";
  if (llmc_test::tiny_shapes() || !std::filesystem::exists(shakespeare)) return;
  const std::string text = llmc::read_file(shakespeare);
  const Ids ids = tokenizer->encode(text);
  CHECK(ids.size() == 338025);
  CHECK(tokenizer->decode(ids) == text);
}

TEST_SUITE_END();
