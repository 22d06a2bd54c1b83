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
#include "test/compressed_samples.h"
#include "test/data_source_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("data_sources");

using namespace llmc;
using namespace llmc_test;
namespace fs = std::filesystem;

namespace {

// The text that `action` writes to stderr.
template <class Action>
std::string stderr_of(Action&& action) {
  std::ostringstream output;
  std::streambuf* const old_buffer = std::cerr.rdbuf(output.rdbuf());
  action();
  std::cerr.rdbuf(old_buffer);
  return output.str();
}

// The cache files in `directory`.
std::vector<std::string> caches_in(const fs::path& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().string().ends_with(kCacheEnding)) paths.push_back(entry.path().string());
  }
  return paths;
}

std::string read_cached(const std::string& path, const Ids& expected,
                        const CacheOptions& cache = {},
                        const Tokenizer& tokenizer = ByteTokenizer()) {
  return stderr_of(
      [&] { CHECK(all_tokens(source_of(path, tokenizer, {.cache = cache})) == expected); });
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

TEST_CASE("the cache of a compressed text belongs to the compressed file") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt.gz");
  write(path, gzip("hello"));
  CHECK(contains(read_cached(path, bytes_of("hello")), "cached the tokens of " + path));
  CHECK(caches_in(directory.path()).size() == 1);
  CHECK(read_cached(path, bytes_of("hello")).empty());
  write(path, gzip("other"));
  CHECK(contains(read_cached(path, bytes_of("other")), "belongs to a text that has changed"));
  fs::create_directory(directory.file("caches"));
  read_cached(path, bytes_of("other"), {.directory = directory.file("caches")});
  CHECK(caches_in(directory.file("caches")).size() == 1);
}

TEST_CASE("skipped lines are reported from the cache as well") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.jsonl");
  write(path, "{\"text\": \"a\"}\nno\n{\"text\": 1}\n{\"text\": \"b\"}\n");
  for (const char* run : {"first", "with the cache"}) {
    CAPTURE(run);
    const ByteTokenizer bytes;
    SourceReader reader(bytes, {.skip_bad_lines = true});
    const std::string output = stderr_of([&] {
      const TokenSource source = reader.read({{path, path}, std::nullopt}, "--train").at(0);
      CHECK(all_tokens(source) == concatenate({{kEnd}, bytes_of("a"), {kEnd}, bytes_of("b")}));
      reader.print_notices();
    });
    CHECK(contains(output, "warning: 2 lines that are no documents were skipped; the first is " +
                               path + ":2\n"));
    CHECK(contains(complaint([&] { source_of(path); }), path + ":2"));
  }
}

TEST_CASE("a text is tokenized once, and its cache is used afterwards") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  CHECK(contains(read_cached(path, bytes_of("hello")), "cached the tokens of " + path));
  const auto caches = caches_in(directory.path());
  REQUIRE(caches.size() == 1);
  CHECK(contains(caches[0], path + ".257-"));
  CHECK(read_cached(path, bytes_of("hello")).empty());
  // The cache is itself a token file and can be read by its name.
  CHECK(all_tokens(source_of(caches[0])) == bytes_of("hello"));
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

TEST_CASE("the same tokenizer from another directory uses the same cache") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("text.txt"), text = "some words";
  write_file(path, text);
  const Ids expected = ByteTokenizer().encode(text);
  CHECK(contains(read_cached(path, expected), "cached the tokens"));
  class SavedBytes : public ByteTokenizer {
    std::string name() const override { return "runs/step_000003"; }
  };
  CHECK(read_cached(path, expected, {}, SavedBytes()).empty());
  CHECK(caches_in(folder.path()).size() == 1);
}

TEST_CASE("a stale or damaged cache is reported and written again") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  read_cached(path, bytes_of("hello"));
  const std::string cache = caches_in(directory.path()).at(0);
  write(path, "jello");
  std::string message = read_cached(path, bytes_of("jello"));
  CHECK(contains(message, "the cache " + cache + " belongs to a text that has changed since"));
  CHECK(caches_in(directory.path()).size() == 1);
  CHECK(read_cached(path, bytes_of("jello")).empty());

  const std::string original = read_file(cache);
  for (const std::size_t at : {0, 4, 8, 12, 20, 28, 36, 1024, 1033}) {
    CAPTURE(at);
    std::string damaged = original;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write(cache, damaged);
    message = read_cached(path, bytes_of("jello"));
    CHECK(contains(message, "the cache " + cache));
    CHECK(contains(message, "tokenizing " + path + " again"));
    CHECK(read_file(cache) == original);
  }
  for (const std::string& damaged : {std::string(), original.substr(0, 500), original + "x"}) {
    write(cache, damaged);
    CHECK(contains(read_cached(path, bytes_of("jello")), "the cache " + cache + " cannot be used"));
    CHECK(read_file(cache) == original);
  }
}

TEST_CASE("if the cache cannot be written, the tokens stay in memory and the reason is reported") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  write(path, "hello");
  const std::string blocked = directory.file("file");
  write(blocked, "x");
  const std::string message = read_cached(path, bytes_of("hello"), {.directory = blocked});
  CHECK(contains(message, "the tokens of " + path + " are not cached"));
  CHECK(contains(message, "another cache directory"));
  if (geteuid() != 0) {
    fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(contains(read_cached(path, bytes_of("hello")), "are not cached"));
    fs::permissions(directory.path(), fs::perms::owner_all);
  }
  CHECK(caches_in(directory.path()).empty());

  // The cache directory is created if it is missing, and keeps texts with the same file name apart.
  const std::string other_path = directory.file("more/text.txt"),
                    cache_directory = directory.file("caches");
  fs::create_directory(directory.file("more"));
  write(other_path, "world");
  for (int round = 0; round < 2; ++round) {
    const std::string first = read_cached(path, bytes_of("hello"), {.directory = cache_directory});
    const std::string second =
        read_cached(other_path, bytes_of("world"), {.directory = cache_directory});
    CHECK((first + second).empty() == (round == 1));
  }
  CHECK(caches_in(cache_directory).size() == 2);
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

TEST_CASE("runs that start at the same time all read the tokens") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("text.txt");
  const std::string text(100'000, 'x');
  write(path, text);
  const Ids expected = bytes_of(text);
  std::vector<int> is_correct(4);
  read_cached(path, expected);
  fs::remove(caches_in(directory.path()).at(0));
  stderr_of([&] {
    std::vector<std::thread> runs;
    for (std::size_t i = 0; i < is_correct.size(); ++i) {
      runs.emplace_back([&, i] {
        const ByteTokenizer bytes;
        TokenCache cache(bytes, {});
        SkippedLines skipped;
        const TokenData tokens = cache.tokens(
            path, "text", [&](std::string_view t) { return bytes.encode(t); }, skipped);
        is_correct[i] = tokens.size() == 100'000 && tokens[99'999] == expected[99'999] ? 1 : 0;
      });
    }
    for (auto& run : runs) run.join();
  });
  CHECK(is_correct == std::vector<int>{1, 1, 1, 1});
  CHECK(caches_in(directory.path()).size() == 1);
}

TEST_SUITE_END();
