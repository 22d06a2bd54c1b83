// Sources that --train accepts: lists with weights, patterns, shards, JSON lines, texts.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/token_hash.h"
#include "llmc/io/data/tokenize_text.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/data_source_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("data_sources");

using namespace llmc;
using namespace llmc_test;
namespace fs = std::filesystem;

// ---- lists -----------------------------------------------------------------------------------

TEST_CASE("a list has several sources, either all with weights or none") {
  const TemporaryDirectory directory;
  const auto names = [](const std::string& text) {
    return parse_source_list(text, "--train", true).names;
  };
  using Names = std::vector<std::string>;
  CHECK(names("a.bin") == Names{"a.bin"});
  CHECK(names("a.bin,b/*.txt") == Names{"a.bin", "b/*.txt"});
  CHECK_FALSE(parse_source_list("a,b", "--train", true).weights);
  const SourceList list = parse_source_list("a.bin:0.7,b.bin:0.3", "--train", true);
  CHECK(list.names == Names{"a.bin", "b.bin"});
  CHECK(list.weights->fraction(0) == 0.7);
  CHECK(parse_source_list("a:1,b:3", "--train", true).weights->fraction(1) == 0.75);
  // Names with commas and colons.
  CHECK(names("a\\,b:1,c\\:1:2,d\\\\:3") == Names{"a,b", "c:1", "d\\"});
  const std::string comma_path = directory.file("x,y:2"), colon_path = directory.file("z:3");
  write(comma_path, "x");
  write(colon_path, "z");
  CHECK(names(comma_path) == Names{comma_path});
  CHECK(names(colon_path + "," + colon_path) == Names{colon_path, colon_path});
  CHECK(names(colon_path + ":5," + colon_path + ":1") == Names{colon_path, colon_path});
}

TEST_CASE("the error for an invalid list states what is allowed") {
  const auto error_of = [](const std::string& text, bool weights = true) {
    return complaint([&] { parse_source_list(text, "--train", weights); });
  };
  for (const char* weight : {"0", "0.0", "-1", "x", "", "nan", "inf", "1e3", ".5", "1.2.3", "1 ",
                             "1234567890", "0.1234567891"}) {
    CAPTURE(weight);
    CHECK(contains(error_of(std::string("a.bin:") + weight),
                   "'" + std::string(weight) + "' is not a weight"));
  }
  CHECK(contains(error_of("a:1,b"), "1 weights for 2 sources"));
  CHECK(contains(error_of("a,,b"), "a source without a name"));
  CHECK(contains(error_of("a,"), "a source without a name"));
  CHECK(contains(error_of(":1"), "a source without a name"));
  CHECK(contains(error_of("a:1,b:2", false), "--train takes no weights"));
  CHECK(contains(error_of("a:0.123456789,b:1"), "give weights with fewer digits"));
}

TEST_CASE("a pattern matches its files in order, without caches, directories and temporary files") {
  const TemporaryDirectory directory;
  for (const char* name : {"s_10.bin", "s_02.bin", "s_01.bin", "other.bin", "s_03.txt"}) {
    write(directory.file(name), "x");
  }
  fs::create_directory(directory.file("s_04.bin"));
  write(directory.file("s_05.txt.bytes-0123456789abcdef.cache.bin"), "x");
  write(directory.file("s_06.bin.tmp-12345678"), "x");
  const auto files = files_of_source(directory.file("s_*.bin"), "--train");
  CHECK(files == std::vector<std::string>{directory.file("s_01.bin"), directory.file("s_02.bin"),
                                          directory.file("s_10.bin")});
  CHECK(contains(complaint([&] { files_of_source(directory.file("t_*.bin"), "--val"); }),
                 "--val: no file matches " + directory.file("t_*.bin")));
  const std::string folder = directory.path().string();
  const std::string error = complaint([&] { files_of_source(folder, "--train"); });
  CHECK(contains(error, "--train: " + folder + " is a directory"));
  CHECK(contains(error, "give a pattern such as '" + folder + "/*.txt'"));
  write(directory.file("[a].txt"), "x");  // a file with exactly this name is not a pattern
  CHECK(files_of_source(directory.file("[a].txt"), "--train").size() == 1);
}

// Within a scope the process is a user for whom file permissions count: root ignores them.
class Unprivileged {
 public:
  Unprivileged() : user_(geteuid()) {
    if (user_ == 0 && seteuid(65534) != 0) possible_ = false;
  }
  ~Unprivileged() {
    if (seteuid(user_) != 0) std::abort();
  }
  bool possible() const { return possible_; }

 private:
  uid_t user_;
  bool possible_ = true;
};

TEST_CASE("a directory of a pattern that cannot be read is an error") {
  const TemporaryDirectory directory;
  const std::string open = directory.file("open"), shut = directory.file("shut");
  for (const std::string& path : {open, shut}) {
    fs::create_directory(path);
    write(path + "/a.txt", "x");
  }
  const auto error_of = [&](const std::string& pattern) {
    return complaint([&] { files_of_source(pattern, "--train"); });
  };
  fs::permissions(directory.path(), fs::perms::all);
  fs::permissions(shut, fs::perms::none);
  {
    const Unprivileged scope;
    if (!scope.possible()) return skip("the test cannot give up root's rights");
    const std::string expected = "--train: cannot read " + shut + ": Permission denied";
    CHECK(error_of(shut + "/*") == expected);
    CHECK(error_of(shut + "/*") == expected);  // the error does not change the next call
    CHECK(error_of(directory.file("*/*.txt")) == expected);
    CHECK(contains(error_of(directory.file("none/*")), "no file matches"));
    CHECK(files_of_source(open + "/*", "--train").size() == 1);
  }
  fs::permissions(shut, fs::perms::owner_all);
  CHECK(files_of_source(directory.file("*/*.txt"), "--train").size() == 2);
}

// ---- kinds of files --------------------------------------------------------------------------

TEST_CASE("shards are one text; each is checked, and errors name the shard") {
  const TemporaryDirectory directory;
  const Ids ids = llmc_test::random_ints(300, 5, 257);
  for (const auto& [name, begin, end] :
       {std::tuple{"s_2.bin", 100, 101}, {"s_1.bin", 0, 100}, {"s_3.bin", 101, 300}}) {
    write_token_file(directory.file(name), std::span(ids).subspan(begin, end - begin), 257);
  }
  const TokenSource source = source_of(directory.file("s_*.bin"));
  CHECK(all_tokens(source) == ids);
  CHECK(source.files() == 3);
  Ids middle(102);
  source.copy(99, 102, middle.data());
  CHECK(middle == Ids(ids.begin() + 99, ids.begin() + 201));
  CHECK(all_tokens(source.slice(50, 150, "part")) == Ids(ids.begin() + 50, ids.begin() + 150));
  CHECK(
      contains(complaint([&] { source.copy(299, 2, middle.data()); }), "of 300 are out of range"));
  write(directory.file("s_2.bin"), "not tokens");
  CHECK(
      contains(complaint([&] { source_of(directory.file("s_*.bin")); }), "s_2.bin is not a token"));
}

TEST_CASE("each document of JSON lines follows an end-of-text token") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("d.jsonl");
  write(path,
        "{\"text\": \"a\\nb\", \"id\": 1}\n \r\n{\"id\": 2, \"text\": "
        "\"c\\u00e9\"}\n{\"text\":\"\"}");
  const TokenSource source = source_of(path);
  const Ids expected = concatenate({{kEnd}, bytes_of("a\nb"), {kEnd}, bytes_of("c\u00e9"), {kEnd}});
  CHECK(all_tokens(source) == expected);
  CHECK(document_starts_of(source) == Ids{0, 0, 0, 0, 4, 4, 4, 4, 8});
  write(path, "{\"body\": \"x\", \"text\": 1}");
  CHECK(all_tokens(
            source_of(path, ByteTokenizer(),
                      {.text = {.field = "body", .separator = {}}, .cache = {.enabled = false}})) ==
        concatenate({{kEnd}, bytes_of("x")}));
  write(directory.file("a.json"), "{\"text\": \"x\"}");
  CHECK(all_tokens(source_of(directory.file("a.json"), ByteTokenizer(),
                             {.text = {.kind = DocumentFormat::Kind::json_lines, .separator = {}},
                              .cache = {.enabled = false}})) ==
        concatenate({{kEnd}, bytes_of("x")}));
  const std::vector<std::pair<std::string, std::string>> invalid = {
      {"{\"text\": \"a\"}\n{\"text\": \"b\"", ":2 is not valid JSON"},
      {"{\"text\": \"\xff\"}", ":1 is not valid JSON"},
      {"\n[1]", ":2 is not a JSON object"},
      {"{\"txt\": \"a\"}", ":1 has no field \"text\" (it has: txt)"},
      {"{\"text\": 3}", ":1: the field \"text\" is not a string"},
      {"", "is empty"},
      {"\n \n", "has no tokens"}};
  for (const auto& [lines, phrase] : invalid) {
    write(path, lines);
    const std::string message = complaint([&] { source_of(path); });
    CAPTURE(message);
    CHECK(contains(message, path));
    CHECK(contains(message, phrase));
  }
  write(path, "{\"text\": \"a\"}");
  CHECK(contains(complaint([&] { source_of(path, WordTokenizer({"a"}, "words")); }),
                 "no end-of-text token"));
}

TEST_CASE("several texts of one source have end-of-text between them") {
  const TemporaryDirectory directory;
  write(directory.file("1.txt"), "ab");
  write(directory.file("2.txt"), "c");
  write(directory.file("3.jsonl"), "{\"text\": \"d\"}");
  CHECK(all_tokens(source_of(directory.file("1.txt"))) == bytes_of("ab"));
  CHECK(all_tokens(source_of(directory.file("*"))) ==
        concatenate({bytes_of("ab"), {kEnd}, bytes_of("c"), {kEnd}, bytes_of("d")}));
}

TEST_CASE("a text tokenized in pieces has the tokens of the whole text") {
  const std::string text = "one two.\n\nthree\r\nfour 5\n six seven";
  CHECK(tokenize_text(text, "t", ByteTokenizer(), 2) == bytes_of(text));
  const std::string data = llmc_test::data_dir();
  if (data.empty()) return llmc_test::skip("GPT-2's vocabulary is missing");
  const BpeTokenizer gpt2(data + "/gpt2");
  const std::string play = read_file(data + "/text/tinyshakespeare.txt").substr(0, 100'000);
  for (const std::size_t piece : {1, 1000}) {
    CHECK(tokenize_text(play, "play", gpt2, piece) == gpt2.encode(play));
    CHECK(tokenize_text(text, "t", gpt2, piece) == gpt2.encode(text));
  }
}

TEST_CASE("a text with a separator is documents, without the lines that are the separator") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.txt");
  const auto tokens = [&](const std::string& text) {
    write(path, text);
    return all_tokens(
        source_of(path, ByteTokenizer(),
                  {.text = {.separator = "<|endoftext|>"}, .cache = {.enabled = false}}));
  };
  const Ids expected = concatenate({{kEnd}, bytes_of("a\n"), {kEnd}, bytes_of("b\n\nc\n")});
  CHECK(tokens("a\n<|endoftext|>\nb\n\nc\n") == expected);
  CHECK(tokens("<|endoftext|>\na\n<|endoftext|>\n<|endoftext|>\r\nb\n\nc\n<|endoftext|>") ==
        expected);
  CHECK(tokens("a <|endoftext|>") == concatenate({{kEnd}, bytes_of("a <|endoftext|>")}));
  CHECK(contains(complaint([&] { tokens("<|endoftext|>\n"); }), path + " has no tokens"));
}

TEST_CASE("the hash of a source depends on its tokens and documents, not on its files") {
  const auto hash_of = [](const std::vector<Ids>& files,
                          TokenSource::DocumentStarts starts = nullptr) {
    TokenSource source("x", 0, kEnd);
    for (const Ids& ids : files) source.add("f", TokenData(ids), starts);
    return source_hash(source);
  };
  const Ids tokens = {1, 2, 3, kEnd, 5};
  CHECK(hash_of({tokens}) == hash_of({{1, 2}, {3, kEnd, 5}}));
  CHECK(hash_of({tokens}) != hash_of({{1, 2, 3, kEnd, 6}}));
  CHECK(hash_of({tokens}) != hash_of({{1, 2, 3, kEnd}}));
  CHECK(hash_of({tokens}) != hash_of({tokens}, std::make_shared<std::vector<std::int64_t>>(2)));
  Ids large(2 * kHashedEnd + 1'000'000);
  const std::string before = hash_of({large});
  const auto changes = [&](std::int64_t at) {
    large[static_cast<std::size_t>(at)] = 1;
    const bool changed = hash_of({large}) != before;
    large[static_cast<std::size_t>(at)] = 0;
    return changed;
  };
  for (const std::int64_t at :
       {std::int64_t{0}, kHashedEnd - 1, kHashedEnd + 1000, kHashedEnd + 1'000'000}) {
    CHECK(changes(at));
  }
  CHECK_FALSE(changes(kHashedEnd + 1024));  // between two blocks
}

TEST_SUITE_END();
