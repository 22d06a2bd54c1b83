// The token cache of a text: written once, reused if it is valid, reported if it is not.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/data_source_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("data_sources");

using namespace llmc;
using namespace llmc_test;
namespace fs = std::filesystem;

namespace {

// The text that `action` writes to stderr.
template <class Action>
std::string said_by(Action&& action) {
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  action();
  std::cerr.rdbuf(before);
  return said.str();
}

// The cache files in `directory`.
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
  // The cache is itself a token file and can be read by its name.
  CHECK(all_of(source_of(caches[0])) == bytes_of("hello"));
  CHECK(read_cached(path, bytes_of("hello"), {.enabled = false}).empty());
  // Another tokenizer with the same name has its own cache.
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

  // The cache directory is created if it is missing, and keeps texts with the same file name apart.
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
