// What --train may name: lists with weights, patterns, Megatron's files, JSON lines, texts; and the
// cache of tokens.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/support.h"

TEST_SUITE_BEGIN("data_sources");

namespace {

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;
namespace fs = std::filesystem;

constexpr std::int32_t kEnd = 256;  // end of text of the byte tokenizer

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Ids bytes_of(const std::string& text) {
  return ByteTokenizer().encode(text);
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TokenSource source_of(const std::string& name, const Tokenizer& tokenizer = ByteTokenizer(),
                      const SourceOptions& options = {.cache = {.enabled = false}}) {
  SourceReader reader(tokenizer, options);
  return reader.read({{name}, std::nullopt}, "--train").at(0);
}

Ids all_of(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), ids.data());
  return ids;
}

Ids starts_of(const TokenSource& source) {
  const Ids tokens = all_of(source);
  Ids starts(tokens.size());
  source.document_starts(0, tokens, starts.data());
  return starts;
}

// What `action` says on stderr.
template <class Action>
std::string said_by(Action&& action) {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  action();
  std::cerr.rdbuf(before);
  return said.str();
}

template <class Number>
void put(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A Megatron index, from the description of the format; fields can be set wrong.
struct MegatronIndex {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers, documents;
  std::uint64_t sequences = 0, boundaries = 0;  // 0: as many as there are

  std::string bytes() const {
    std::string out = magic;
    put(out, version);
    put(out, type);
    put(out, sequences != 0 ? sequences : std::uint64_t{lengths.size()});
    put(out, boundaries != 0 ? boundaries : std::uint64_t{documents.size()});
    for (const auto x : lengths) put(out, x);
    for (const auto x : pointers) put(out, x);
    for (const auto x : documents) put(out, x);
    return out;
  }
};

// Documents {1, 2, 3}, {4, 5} + {6}, {} and {7, 8} of 16-bit tokens.
MegatronIndex good_index() {
  MegatronIndex index;
  index.lengths = {3, 2, 1, 0, 2};
  index.pointers = {0, 6, 10, 12, 12};
  index.documents = {0, 1, 3, 4, 5};
  return index;
}

template <class Token>
std::string raw(const std::vector<Token>& tokens) {
  std::string out;
  for (const Token token : tokens) put(out, token);
  return out;
}

}  // namespace

// ---- lists -----------------------------------------------------------------------------------

TEST_CASE("lists of sources, with weights and without") {
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
  CHECK(list.weights->share(0) == 0.7);
  CHECK(parse_source_list("a:1,b:3", "--train", true).weights->share(1) == 0.75);
  // Names with commas and colons.
  CHECK(names("a\\,b:1,c\\:1:2,d\\\\:3") == Names{"a,b", "c:1", "d\\"});
  const std::string odd = directory.file("x,y:2"), other = directory.file("z:3");
  write(odd, "x");
  write(other, "z");
  CHECK(names(odd) == Names{odd});
  CHECK(names(other + "," + other) == Names{other, other});
  CHECK(names(other + ":5," + other + ":1") == Names{other, other});
}

TEST_CASE("lists that are wrong say what would be right") {
  const auto said = [](const std::string& text, bool weights = true) {
    return complaint([&] { parse_source_list(text, "--train", weights); });
  };
  for (const char* weight : {"0", "0.0", "-1", "x", "", "nan", "inf", "1e3", ".5", "1.2.3", "1 ",
                             "1234567890", "0.1234567891"}) {
    CAPTURE(weight);
    CHECK(contains(said(std::string("a.bin:") + weight),
                   "'" + std::string(weight) + "' is not a weight"));
  }
  CHECK(contains(said("a:1,b"), "1 weights for 2 sources"));
  CHECK(contains(said("a,,b"), "a source without a name"));
  CHECK(contains(said("a,"), "a source without a name"));
  CHECK(contains(said(":1"), "a source without a name"));
  CHECK(contains(said("a:1,b:2", false), "--train takes no weights"));
  CHECK(contains(said("a:0.123456789,b:1"), "weights of fewer digits"));
}

TEST_CASE("a pattern is its files in order, and nothing that is none") {
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
                 "--val: no file is named like " + directory.file("t_*.bin")));
  write(directory.file("[a].txt"), "x");  // a file of that very name is not a pattern
  CHECK(files_of_source(directory.file("[a].txt"), "--train").size() == 1);
}

// ---- kinds of files --------------------------------------------------------------------------

TEST_CASE("shards are one text; each is checked and named") {
  const TemporaryDirectory directory;
  const Ids ids = llmc_test::random_ints(300, 5, 257);
  for (const auto& [name, begin, end] :
       {std::tuple{"s_2.bin", 100, 101}, {"s_1.bin", 0, 100}, {"s_3.bin", 101, 300}}) {
    write_token_file(directory.file(name), std::span(ids).subspan(begin, end - begin), 257);
  }
  const TokenSource source = source_of(directory.file("s_*.bin"));
  CHECK(all_of(source) == ids);
  CHECK(source.files() == 3);
  Ids middle(102);
  source.copy(99, 102, middle.data());
  CHECK(middle == Ids(ids.begin() + 99, ids.begin() + 201));
  CHECK(all_of(source.slice(50, 150, "part")) == Ids(ids.begin() + 50, ids.begin() + 150));
  CHECK(contains(complaint([&] { source.copy(299, 2, middle.data()); }), "of 300 were asked for"));
  write(directory.file("s_2.bin"), "not tokens");
  CHECK(
      contains(complaint([&] { source_of(directory.file("s_*.bin")); }), "s_2.bin is not a token"));
}

TEST_CASE("Megatron's files: 16 and 32 bits, documents by the index, by any of their names") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("corpus");
  write(prefix + ".idx", good_index().bytes());
  write(prefix + ".bin", raw<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8}));
  for (const std::string& name :
       {prefix, prefix + ".bin", prefix + ".idx", directory.file("corp*")}) {
    CAPTURE(name);
    const TokenSource source = source_of(name);
    CHECK(all_of(source) == Ids{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(starts_of(source) == Ids{0, 0, 0, 3, 3, 3, 6, 6});
    CHECK(source.has_documents());
  }
  MegatronIndex wide = good_index();
  wide.type = 4;
  for (auto& pointer : wide.pointers) pointer *= 2;
  write(prefix + ".idx", wide.bytes());
  write(prefix + ".bin", raw<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 256}));
  CHECK(all_of(source_of(prefix)) == Ids{1, 2, 3, 4, 5, 6, 7, 256});
  write(prefix + ".bin", raw<std::int32_t>({1, 2, -3, 4, 5, 6, 7, 8}));
  CHECK(contains(complaint([&] { source_of(prefix); }), "corpus.bin: token 2 is -3, outside"));
}

TEST_CASE("Megatron's files that are wrong") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("corpus");
  const std::string tokens = raw<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8});
  const auto said = [&](const std::string& index, const std::string& bin) {
    write(prefix + ".idx", index);
    write(prefix + ".bin", bin);
    return complaint([&] { source_of(prefix); });
  };
  const std::string good = good_index().bytes();
  REQUIRE(said(good, tokens).empty());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(contains(said(good.substr(0, size), tokens), prefix + ".idx is truncated"));
  }
  CHECK(contains(said(good + "x", tokens), ".idx is garbled: 5 sequences and 5 document"));
  CHECK(contains(said(good + "modes", tokens), "multimodal"));
  CHECK(contains(said(good, tokens.substr(1)), "bytes left when it begins"));
  CHECK(contains(said(good, tokens + "xx"), "corpus.bin is garbled: it has 18 bytes"));

  const auto changed = [&](const auto& change) {
    MegatronIndex index = good_index();
    change(index);
    return said(index.bytes(), tokens);
  };
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK(contains(changed([](auto& i) { i.magic[0] = 'm'; }), "is not a Megatron index"));
  CHECK(contains(changed([](auto& i) { i.version = 2; }), "version 2"));
  CHECK(contains(changed([](auto& i) { i.type = 6; }), "of type 6"));
  CHECK(contains(changed([](auto& i) { i.sequences = ~std::uint64_t{0}; }), "cannot hold"));
  CHECK(contains(changed([](auto& i) { i.boundaries = std::uint64_t{1} << 61; }), "cannot hold"));
  CHECK(contains(changed([](auto& i) { i.sequences = 6; }), "truncated"));
  CHECK(contains(changed([](auto& i) { i.lengths[1] = -2; }), "sequence 1 has -2 tokens"));
  CHECK(contains(changed([](auto& i) { i.lengths[4] = 2'000'000'000; }), "sequence 4 has"));
  CHECK(contains(changed([](auto& i) { i.pointers[2] = 8; }),
                 "sequence 2 is said to begin at byte 8"));
  CHECK(contains(changed([](auto& i) { i.pointers[2] = kHuge; }), "sequence 2 is said"));
  CHECK(
      contains(changed([](auto& i) { i.documents[0] = 1; }), "document boundary 0 is sequence 1"));
  CHECK(
      contains(changed([](auto& i) { i.documents[2] = 0; }), "document boundary 2 is sequence 0"));
  CHECK(contains(changed([](auto& i) { i.documents[1] = kHuge; }), "document boundary 1"));
  CHECK(
      contains(changed([](auto& i) { i.documents[4] = 4; }), "document boundary 4 is sequence 4"));
  CHECK(contains(changed([](auto& i) { i.documents[0] = -1; }),
                 "document boundary 0 is sequence -1"));

  MegatronIndex nothing;
  nothing.documents = {0};
  CHECK(contains(said(nothing.bytes(), ""), ".idx has no sequences"));
  CHECK(said(good, tokens).empty());
  fs::remove(prefix + ".bin");
  CHECK(contains(complaint([&] { source_of(prefix + ".idx"); }), "corpus.bin"));
}

TEST_CASE("JSON lines: end-of-text, then the document") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("d.jsonl");
  write(path,
        "{\"text\": \"a\\nb\", \"id\": 1}\n \r\n{\"id\": 2, \"text\": "
        "\"c\\u00e9\"}\n{\"text\":\"\"}");
  const TokenSource source = source_of(path);
  const Ids want = joined({{kEnd}, bytes_of("a\nb"), {kEnd}, bytes_of("c\u00e9"), {kEnd}});
  CHECK(all_of(source) == want);
  CHECK(starts_of(source) == Ids{0, 0, 0, 0, 4, 4, 4, 4, 8});
  write(path, "{\"body\": \"x\", \"text\": 1}");
  CHECK(all_of(source_of(path, ByteTokenizer(),
                         {.text_field = "body", .cache = {.enabled = false}})) ==
        joined({{kEnd}, bytes_of("x")}));
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{\"text\": \"a\"}\n{\"text\": \"b\"", ":2 is not valid JSON"},
      {"{\"text\": \"\xff\"}", ":1 is not valid JSON"},
      {"\n[1]", ":2 is not a JSON object"},
      {"{\"txt\": \"a\"}", ":1 has no field \"text\" (it has: txt)"},
      {"{\"text\": 3}", ":1: the field \"text\" is not a string"},
      {"", "is empty"},
      {"\n \n", "holds no tokens"}};
  for (const auto& [lines, why] : wrong) {
    write(path, lines);
    const std::string said = complaint([&] { source_of(path); });
    CAPTURE(said);
    CHECK(contains(said, path));
    CHECK(contains(said, why));
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
  CHECK(all_of(source_of(directory.file("1.txt"))) == bytes_of("ab"));
  CHECK(all_of(source_of(directory.file("*"))) ==
        joined({bytes_of("ab"), {kEnd}, bytes_of("c"), {kEnd}, bytes_of("d")}));
}

TEST_CASE("a text tokenized in pieces has the tokens of the whole") {
  const std::string text = "one two.\n\nthree\r\nfour 5\n six seven";
  CHECK(tokenize_text(text, "t", ByteTokenizer(), 2) == bytes_of(text));
  const std::string data = llmc_test::data_dir();
  if (data.empty()) return llmc_test::skip("no GPT-2 tokenizer here");
  const BpeTokenizer gpt2(data + "/gpt2");
  const std::string play = read_file(data + "/text/tinyshakespeare.txt").substr(0, 100'000);
  for (const std::size_t piece : {1, 1000}) {
    CHECK(tokenize_text(play, "play", gpt2, piece) == gpt2.encode(play));
    CHECK(tokenize_text(text, "t", gpt2, piece) == gpt2.encode(text));
  }
}

// ---- the cache -------------------------------------------------------------------------------

namespace {

// Files beside `path` that are caches of it.
std::vector<std::string> caches_in(const fs::path& directory) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().string().ends_with(kCacheEnding)) found.push_back(entry.path().string());
  }
  return found;
}

std::string read_cached(const std::string& path, const Ids& want, const CacheOptions& cache = {},
                        const Tokenizer& tokenizer = ByteTokenizer()) {
  return said_by([&] { CHECK(all_of(source_of(path, tokenizer, {.cache = cache})) == want); });
}

class OtherBytes : public ByteTokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    auto tokens = ByteTokenizer::encode(text);
    for (auto& token : tokens) token ^= 1;
    return tokens;
  }
};

class WithFiles : public ByteTokenizer {
 public:
  explicit WithFiles(std::string text) : text_(std::move(text)) {}
  std::vector<TextFile> files() const override { return {{"vocab", text_}}; }

 private:
  std::string text_;
};

}  // namespace

TEST_CASE("a text is tokenized once") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  CHECK(contains(read_cached(path, bytes_of("hello")), "cached the tokens of " + path));
  const auto caches = caches_in(directory.path());
  REQUIRE(caches.size() == 1);
  CHECK(contains(caches[0], path + ".bytes-"));
  CHECK(read_cached(path, bytes_of("hello")).empty());
  // The cache is a token file, and is what is read: bytes put there by hand come back.
  CHECK(all_of(source_of(caches[0])) == bytes_of("hello"));
  CHECK(read_cached(path, bytes_of("hello"), {.enabled = false}).empty());
  // Another tokenizer of the same name, or another way to read, has a cache of its own.
  read_cached(path, OtherBytes().encode("hello"), {}, OtherBytes());
  CHECK(caches_in(directory.path()).size() == 2);
  CHECK(tokenizer_checksum(WithFiles("a")) != tokenizer_checksum(WithFiles("b")));
  CHECK(tokenizer_checksum(WordTokenizer({"a", "bc"}, "x")) !=
        tokenizer_checksum(WordTokenizer({"ab", "c"}, "x")));
  CHECK(tokenizer_checksum(WordTokenizer({"a", "b"}, "x")) ==
        tokenizer_checksum(WordTokenizer({"a", "b"}, "y")));
}

TEST_CASE("a cache that is stale or damaged is named and made anew") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  read_cached(path, bytes_of("hello"));
  const std::string cache = caches_in(directory.path()).at(0);
  write(path, "jello");
  std::string said = read_cached(path, bytes_of("jello"));
  CHECK(contains(said, "the cache " + cache + " is of a text that has changed since"));
  CHECK(caches_in(directory.path()).size() == 1);
  CHECK(read_cached(path, bytes_of("jello")).empty());

  const std::string good = read_file(cache);
  for (const std::size_t at : {0, 4, 8, 12, 20, 28, 36, 1024, 1033}) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write(cache, bad);
    said = read_cached(path, bytes_of("jello"));
    CHECK(contains(said, "the cache " + cache));
    CHECK(contains(said, "tokenizing " + path + " anew"));
    CHECK(read_file(cache) == good);
  }
  for (const std::string& bad : {std::string(), good.substr(0, 500), good + "x"}) {
    write(cache, bad);
    CHECK(contains(read_cached(path, bytes_of("jello")), "the cache " + cache + " cannot be used"));
    CHECK(read_file(cache) == good);
  }
}

TEST_CASE("where there is no room for a cache, the tokens stay in memory, and it is said") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  const std::string blocked = directory.file("file");
  write(blocked, "x");
  const std::string said = read_cached(path, bytes_of("hello"), {.directory = blocked});
  CHECK(contains(said, "the tokens of " + path + " are not cached"));
  CHECK(contains(said, "another cache directory"));
  if (geteuid() != 0) {
    fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(contains(read_cached(path, bytes_of("hello")), "are not cached"));
    fs::permissions(directory.path(), fs::perms::owner_all);
  }
  CHECK(caches_in(directory.path()).empty());

  // A folder of its own is made, and keeps texts of one name apart.
  const std::string other = directory.file("more/text.txt"), kept = directory.file("caches");
  fs::create_directory(directory.file("more"));
  write(other, "world");
  for (int round = 0; round < 2; ++round) {
    const std::string first = read_cached(path, bytes_of("hello"), {.directory = kept});
    const std::string second = read_cached(other, bytes_of("world"), {.directory = kept});
    CHECK((first + second).empty() == (round == 1));
  }
  CHECK(caches_in(kept).size() == 2);
}

TEST_CASE("pipes and vocabularies beyond 16 bits are tokenized in memory") {
  class Wide : public ByteTokenizer {
   public:
    std::int64_t vocabulary_size() const override { return 65537; }
  };
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt"), pipe = directory.file("pipe");
  write(path, "hello");
  CHECK(
      contains(read_cached(path, bytes_of("hello"), {}, Wide()), "does not fit into the 16 bits"));
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { write(pipe, "hello"); });
  CHECK(read_cached(pipe, bytes_of("hello")).empty());
  writer.join();
  CHECK(caches_in(directory.path()).empty());
}

TEST_CASE("runs that start at the same time all get the tokens") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  const std::string text(100'000, 'x');
  write(path, text);
  const Ids want = bytes_of(text);
  std::vector<int> good(4);
  read_cached(path, want);
  fs::remove(caches_in(directory.path()).at(0));
  said_by([&] {
    std::vector<std::thread> runs;
    for (std::size_t i = 0; i < good.size(); ++i) {
      runs.emplace_back([&, i] {
        const ByteTokenizer bytes;
        TokenCache own(bytes, {});
        const TokenData tokens =
            own.tokens(path, "text", [&](std::string_view t) { return bytes.encode(t); });
        good[i] = tokens.size() == 100'000 && tokens[99'999] == want[99'999] ? 1 : 0;
      });
    }
    for (auto& run : runs) run.join();
  });
  CHECK(good == std::vector<int>{1, 1, 1, 1});
  CHECK(caches_in(directory.path()).size() == 1);
}

TEST_SUITE_END();
