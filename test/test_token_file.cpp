// Token files: their bytes, faults of every kind, and the views through which training reads.
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/support.h"

TEST_SUITE_BEGIN("token_file");

namespace {

using llmc_test::complaint;
using llmc_test::contains;
using Ids = std::vector<std::int32_t>;
using llmc::TokenData;
using llmc_test::TemporaryDirectory;

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A file as llm.c's own tools would write it, from the description of the format.
std::string raw_file(std::int32_t magic, std::int32_t version, std::int32_t count,
                     const std::vector<std::uint16_t>& tokens) {
  std::array<std::int32_t, 256> header{};
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string bytes(sizeof header + 2 * tokens.size(), '\0');
  std::memcpy(bytes.data(), header.data(), sizeof header);
  if (!tokens.empty()) std::memcpy(bytes.data() + sizeof header, tokens.data(), 2 * tokens.size());
  return bytes;
}

Ids all_tokens(const TokenData& tokens) {
  Ids ids(static_cast<std::size_t>(tokens.size()));
  for (std::int64_t i = 0; i < tokens.size(); ++i) ids[static_cast<std::size_t>(i)] = tokens[i];
  return ids;
}

// All tokens of a file of any kind, tokenized in memory.
Ids load(const std::string& path, const llmc::Tokenizer& tokenizer) {
  llmc::SourceReader reader(tokenizer, {.cache = {.enabled = false}});
  const llmc::TokenSource source = reader.read({{path}, std::nullopt}, "--train").at(0);
  Ids ids(static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), ids.data());
  return ids;
}

std::size_t files_in(const TemporaryDirectory& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory.path()),
                    std::filesystem::directory_iterator()));
}

class TokenizerOfSize : public llmc::ByteTokenizer {
 public:
  explicit TokenizerOfSize(std::int64_t size) : size_(size) {}
  std::int64_t vocabulary_size() const override { return size_; }

 private:
  std::int64_t size_;
};

}  // namespace

TEST_CASE("a token file has the format of llm.c, byte for byte") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  const Ids ids = {0, 1, 50256, 65535, 7};
  llmc::write_token_file(path, ids, 65536);
  CHECK(llmc::read_file(path) == raw_file(20240520, 1, 5, {0, 1, 50256, 65535, 7}));
  CHECK(all_tokens(llmc::read_token_file(path)) == ids);
  CHECK(files_in(directory) == 1);
}

TEST_CASE("a token file can be written in pieces") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  const Ids ids = llmc_test::random_ints(200'000, 3, 50257);
  const std::span<const std::int32_t> all(ids);
  llmc::TokenFileWriter writer(path, 50257, 200'000);
  writer.append(all.first(1));
  writer.append(all.subspan(1, 150'000));
  writer.append({});
  CHECK(!std::filesystem::exists(path));
  // The error names the position in the file, and a rejected piece leaves the writer unchanged.
  CHECK(contains(complaint([&] { writer.append(Ids{1, 50257}); }), "token 150002 is 50257"));
  writer.append(all.subspan(150'001));
  writer.finish();
  CHECK(all_tokens(llmc::read_token_file(path)) == ids);
}

TEST_CASE("a file that cannot be written replaces nothing") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  write(path, "kept");
  const Ids ids = {1, 2, 300};
  const auto error_of = [&](std::int64_t vocabulary, std::int64_t count, const Ids& tokens) {
    return complaint([&] {
      llmc::TokenFileWriter writer(path, vocabulary, count);
      writer.append(tokens);
      writer.finish();
    });
  };
  CHECK(contains(error_of(65537, 3, ids), "a vocabulary of 65537 do not fit"));
  CHECK(contains(error_of(65537, 3, ids), path));
  CHECK(contains(error_of(400, 4, ids), path + ": 3 tokens of 4 were written"));
  CHECK(contains(error_of(400, 2, ids), path + ": more tokens than 2"));
  CHECK(contains(error_of(300, 3, ids), path + ": token 2 is 300, outside the vocabulary of 300"));
  CHECK(contains(error_of(300, 3, {1, -5, 2}), path + ": token 1 is -5, outside"));
  CHECK(contains(error_of(300, 0, {}), path + ": 0 tokens cannot be in one token file"));
  CHECK(contains(error_of(300, std::int64_t{1} << 31, {}), path + ": 2147483648 tokens cannot"));
  CHECK(contains(complaint([&] { llmc::write_token_file(path + "/x.bin", ids, 400); }),
                 path + "/x.bin"));
  CHECK(llmc::read_file(path) == "kept");
  CHECK(files_in(directory) == 1);
  CHECK(error_of(301, 3, ids).empty());
  CHECK(all_tokens(llmc::read_token_file(path)) == ids);
}

TEST_CASE("the error for an invalid token file names the file and the problem") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  const auto error_of = [&](const std::string& bytes) {
    write(path, bytes);
    return complaint([&] { load(path, llmc::ByteTokenizer()); });
  };
  const std::string good = raw_file(20240520, 1, 3, {1, 2, 256});
  CHECK(error_of(good).empty());
  const std::vector<std::pair<std::string, std::string>> invalid = {
      {"", " is empty"},
      {"abc", " is truncated: its 3 bytes are less than the header"},
      {good.substr(0, 1023), " is truncated: its 1023 bytes are less than the header"},
      {good.substr(0, 1024),
       " is truncated: its header announces 3 tokens of 2 bytes, but 0 bytes"},
      {good.substr(0, 1029),
       " is truncated: its header announces 3 tokens of 2 bytes, but 5 bytes"},
      {good + "x", " is damaged: its header announces 3 tokens of 2 bytes, but 7 bytes"},
      {"To be, or not to be", " is not a token file: it begins with"},
      {raw_file(20240521, 1, 3, {1, 2, 3}), " is not a token file: it begins with 20240521"},
      {raw_file(20240520, 7, 3, {1, 2, 3}), " is a token file of version 7"},
      {raw_file(20240520, 1, 0, {}), " has no tokens"},
      {raw_file(20240520, 1, -3, {1, 2, 3}), " is damaged: its header announces -3 tokens"},
      {raw_file(20240520, 1, 3, {1, 257, 300}), ": token 1 is 257, outside the vocabulary of 257"}};
  for (const auto& [bytes, phrase] : invalid) {
    CAPTURE(phrase);
    const std::string message = error_of(bytes);
    CAPTURE(message);
    CHECK(contains(message, path + phrase));
  }
  std::filesystem::remove(path);
  CHECK(contains(complaint([&] { llmc::read_token_file(path); }), path));
  std::filesystem::create_directory(path);
  CHECK(contains(complaint([&] { llmc::read_token_file(path); }), path));

  // The position of a bad token is also right after the first piece that is checked.
  std::filesystem::remove(path);
  std::vector<std::uint16_t> long_file(150'000, 1);
  long_file[140'001] = 999;
  CHECK(contains(error_of(raw_file(20240520, 1, 150'000, long_file)),
                 path + ": token 140001 is 999"));
}

TEST_CASE("tokens in memory and in a file are read in the same way") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  Ids ids(1000);
  std::iota(ids.begin(), ids.end(), 60'000);
  llmc::write_token_file(path, ids, 65536);
  for (const TokenData& all : {TokenData(ids), llmc::read_token_file(path)}) {
    CHECK(all.size() == 1000);
    TokenData part;
    CHECK(part.size() == 0);
    CHECK(part.slice(0, 0).size() == 0);
    {
      const TokenData middle = all.slice(100, 900);
      part = middle.slice(10, 20);
    }
    CHECK(part.size() == 10);
    CHECK(part[0] == 60'110);
    CHECK(all_tokens(part) == Ids(ids.begin() + 110, ids.begin() + 120));
    Ids out(5, -1);
    part.copy(6, 4, out.data());
    CHECK(out == Ids{60'116, 60'117, 60'118, 60'119, -1});
    part.copy(10, 0, nullptr);
    CHECK(all.slice(1000, 1000).size() == 0);
    for (const auto& [begin, end] : {std::pair{-1, 3}, {3, 11}, {5, 4}, {11, 11}}) {
      CHECK(contains(complaint([&] { part.slice(begin, end); }), "of 10 are out of range"));
      CHECK(contains(complaint([&] { part.copy(begin, end - begin, out.data()); }), "of 10 are"));
    }
  }
}

TEST_CASE("tokens outlive the object and the file that they came from") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  const Ids ids = llmc_test::random_ints(5000, 4, 60'000);
  llmc::write_token_file(path, ids, 60'000);
  const TokenData second_half = llmc::read_token_file(path).slice(2500, 5000);
  llmc::write_token_file(path, Ids(5000, 9), 60'000);  // replaces the file; the old mapping stays
  CHECK(all_tokens(second_half) == Ids(ids.begin() + 2500, ids.end()));
  std::filesystem::remove(path);
  CHECK(all_tokens(second_half) == Ids(ids.begin() + 2500, ids.end()));
  const TokenData tail = TokenData(ids).slice(1, 5000);
  CHECK(all_tokens(tail) == Ids(ids.begin() + 1, ids.end()));
}

TEST_CASE("the name of a file decides whether it is a text or a token file") {
  const TemporaryDirectory directory;
  const llmc::ByteTokenizer bytes;
  const std::string text = directory.file("text.txt");
  write(text, "!\"#");
  CHECK(load(text, bytes) == Ids{0, 1, 2});
  const std::string no_extension = directory.file("bin");
  write(no_extension, "#");
  CHECK(load(no_extension, bytes) == Ids{2});
  const std::string tokens = directory.file("tokens.bin");
  llmc::write_token_file(tokens, Ids{256, 3}, 257);
  CHECK(load(tokens, bytes) == Ids{256, 3});
  CHECK(contains(complaint([&] { load(tokens, TokenizerOfSize(256)); }),
                 tokens + ": token 0 is 256, outside the vocabulary of 256"));
  CHECK(load(tokens, TokenizerOfSize(65536)).size() == 2);
  CHECK(contains(complaint([&] { load(tokens, TokenizerOfSize(65537)); }),
                 "a vocabulary of 65537 do not fit"));

  const auto error_of = [&](const std::string& path, const llmc::Tokenizer& tokenizer) {
    return complaint([&] { load(path, tokenizer); });
  };
  CHECK(contains(error_of(directory.file("none.txt"), bytes),
                 "cannot open " + directory.file("none.txt")));
  CHECK(contains(error_of(directory.path().string(), bytes), directory.path().string()));
  write(text, "");
  CHECK(contains(error_of(text, bytes), text + " is empty"));
  const llmc::WordTokenizer words({"a", "b"}, "two words");
  write(text, "a b\na c\n");
  CHECK(contains(error_of(text, words), text + ": line 2: the word \"c\""));
  write(text, " \n");
  CHECK(contains(error_of(text, words), text + " has no tokens"));
}

TEST_CASE("tokens of 32 bits have another magic number and version") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("wide.bin");
  const llmc::ByteTokenizer bytes;
  write(path, raw_file(20240801, 7, 2, {5, 0, 256, 0}));
  CHECK(load(path, bytes) == Ids{5, 256});
  write(path, raw_file(20240801, 7, 2, {5, 0, 0, 0x8000}));
  CHECK(contains(complaint([&] { load(path, bytes); }), "token 1 is 2147483648, outside"));
  write(path, raw_file(20240801, 7, 2, {5, 0, 256}));
  CHECK(contains(complaint([&] { load(path, bytes); }), "is truncated: its header announces 2"));
  write(path, raw_file(20240801, 1, 2, {5, 0, 256, 0}));
  CHECK(contains(complaint([&] { load(path, bytes); }), "supported version: 7"));
}

TEST_CASE("nanoGPT's tokens have no header and need the format to be named") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("val.bin");
  const llmc::ByteTokenizer bytes;
  const auto read = [&](llmc::BinFormat format) {
    llmc::SourceReader reader(bytes, {.bin = format, .cache = {.enabled = false}});
    const llmc::TokenSource source = reader.read({{path}, std::nullopt}, "--train").at(0);
    Ids ids(static_cast<std::size_t>(source.size()));
    source.copy(0, source.size(), ids.data());
    return ids;
  };
  using enum llmc::BinFormat;
  write(path, std::string("\1\0\2\0\0\1", 6));
  CHECK(read(nanogpt) == Ids{1, 2, 256});
  CHECK(contains(complaint([&] { read(llmc); }), "use format of token files nanogpt"));
  write(path, raw_file(20240520, 1, 2, {5, 256}));  // a header is recognised in this format as well
  CHECK(read(nanogpt) == Ids{5, 256});
  write(path, std::string("\1\0\2", 3));
  CHECK(contains(complaint([&] { read(nanogpt); }), path + " has 3 bytes, which is no whole"));
  write(path, "");
  CHECK(contains(complaint([&] { read(nanogpt); }), path + " is empty"));
  write(path, std::string("\1\0\2\2", 4));
  CHECK(contains(complaint([&] { read(nanogpt); }), path + ": token 1 is 514, outside"));
  write(path, "\x93NUMPY\1\0v");
  CHECK(contains(complaint([&] { read(llmc); }), "it is a NumPy array (.npy): convert it with"));
}

TEST_SUITE_END();
