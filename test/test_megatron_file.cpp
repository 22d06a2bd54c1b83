// Megatron's token files as sources of --train: valid files are read, invalid files are rejected.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "test/data_source_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("data_sources");

using namespace llmc_test;
namespace fs = std::filesystem;

namespace {

template <class Number>
void put(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A Megatron index, from the description of the format; tests set single fields to wrong values.
struct MegatronIndex {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers, documents;
  std::uint64_t sequences = 0, boundaries = 0;  // 0: the true count

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

// Documents of 16-bit tokens: {1, 2, 3}, {4, 5} + {6} in two sequences, {} and {7, 8}.
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

TEST_CASE("Megatron files of 16 and 32 bits are read by any of their names, with documents") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("corpus");
  write(prefix + ".idx", good_index().bytes());
  write(prefix + ".bin", raw<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8}));
  for (const std::string& name :
       {prefix, prefix + ".bin", prefix + ".idx", directory.file("corp*")}) {
    CAPTURE(name);
    const TokenSource source = source_of(name);
    CHECK(all_tokens(source) == Ids{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(document_starts_of(source) == Ids{0, 0, 0, 3, 3, 3, 6, 6});
    CHECK(source.has_documents());
  }
  MegatronIndex index32 = good_index();
  index32.type = 4;
  for (auto& pointer : index32.pointers) pointer *= 2;
  write(prefix + ".idx", index32.bytes());
  write(prefix + ".bin", raw<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 256}));
  CHECK(all_tokens(source_of(prefix)) == Ids{1, 2, 3, 4, 5, 6, 7, 256});
  write(prefix + ".bin", raw<std::int32_t>({1, 2, -3, 4, 5, 6, 7, 8}));
  CHECK(contains(complaint([&] { source_of(prefix); }), "corpus.bin: token 2 is -3, outside"));
}

TEST_CASE("Megatron files of every integer type are read, and their bad tokens are errors") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("corpus");
  const auto write_tokens = [&](std::uint8_t type, const auto& tokens) {
    MegatronIndex index;
    index.type = type;
    index.lengths = {static_cast<std::int32_t>(tokens.size())};
    index.pointers = {0};
    index.documents = {0, 1};
    write(prefix + ".idx", index.bytes());
    write(prefix + ".bin", raw(tokens));
  };
  const auto check = [&]<class Token>(std::uint8_t type, Token bad, const std::string& text) {
    CAPTURE(type);
    write_tokens(type, std::vector<Token>{1, 2, 100});
    CHECK(all_tokens(source_of(prefix)) == Ids{1, 2, 100});
    write_tokens(type, std::vector<Token>{1, bad, 100});
    CHECK(contains(complaint([&] { source_of(prefix); }),
                   "corpus.bin: token 1 is " + text + ", outside the vocabulary of 257"));
  };
  check(2, std::int8_t{-1}, "-1");
  check(3, std::int16_t{-300}, "-300");
  check(4, std::int32_t{257}, "257");
  check(5, std::int64_t{1} << 40, "1099511627776");
  check(5, std::numeric_limits<std::int64_t>::min(), "-9223372036854775808");
  check(8, std::uint16_t{65535}, "65535");
  write_tokens(1, std::vector<std::uint8_t>{0, 200, 255});
  CHECK(all_tokens(source_of(prefix)) == Ids{0, 200, 255});
  for (const std::uint8_t type : {0, 6, 7, 9}) {
    write_tokens(type, std::vector<float>{1, 2});
    CHECK(contains(complaint([&] { source_of(prefix); }), "supported types: 1 (uint8)"));
  }
}

TEST_CASE("the error for an invalid Megatron file names the file and the problem") {
  const TemporaryDirectory directory;
  const std::string prefix = directory.file("corpus");
  const std::string tokens = raw<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8});
  const auto error_of = [&](const std::string& index, const std::string& bin) {
    write(prefix + ".idx", index);
    write(prefix + ".bin", bin);
    return complaint([&] { source_of(prefix); });
  };
  const std::string good = good_index().bytes();
  REQUIRE(error_of(good, tokens).empty());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(contains(error_of(good.substr(0, size), tokens), prefix + ".idx is truncated"));
  }
  CHECK(contains(error_of(good + "x", tokens), ".idx is damaged: 5 sequences and 5 document"));
  CHECK(contains(error_of(good + "modes", tokens), "multimodal"));
  CHECK(contains(error_of(good, tokens.substr(1)), "bytes left when it begins"));
  CHECK(contains(error_of(good, tokens + "xx"), "corpus.bin is damaged: it has 18 bytes"));

  const auto error_after = [&](const auto& change) {
    MegatronIndex index = good_index();
    change(index);
    return error_of(index.bytes(), tokens);
  };
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK(contains(error_after([](auto& i) { i.magic[0] = 'm'; }), "is not a Megatron index"));
  CHECK(contains(error_after([](auto& i) { i.version = 2; }), "version 2"));
  CHECK(contains(error_after([](auto& i) { i.type = 6; }), "of type 6"));
  CHECK(contains(error_after([](auto& i) { i.sequences = ~std::uint64_t{0}; }), "cannot hold"));
  CHECK(
      contains(error_after([](auto& i) { i.boundaries = std::uint64_t{1} << 61; }), "cannot hold"));
  CHECK(contains(error_after([](auto& i) { i.sequences = 6; }), "truncated"));
  CHECK(contains(error_after([](auto& i) { i.lengths[1] = -2; }), "sequence 1 has -2 tokens"));
  CHECK(contains(error_after([](auto& i) { i.lengths[4] = 2'000'000'000; }), "sequence 4 has"));
  CHECK(contains(error_after([](auto& i) { i.pointers[2] = 8; }), "sequence 2 begins at byte 8"));
  CHECK(contains(error_after([](auto& i) { i.pointers[2] = kHuge; }), "sequence 2 begins at byte"));
  CHECK(contains(error_after([](auto& i) { i.documents[0] = 1; }),
                 "document boundary 0 is sequence 1"));
  CHECK(contains(error_after([](auto& i) { i.documents[2] = 0; }),
                 "document boundary 2 is sequence 0"));
  CHECK(contains(error_after([](auto& i) { i.documents[1] = kHuge; }), "document boundary 1"));
  CHECK(contains(error_after([](auto& i) { i.documents[4] = 4; }),
                 "document boundary 4 is sequence 4"));
  CHECK(contains(error_after([](auto& i) { i.documents[0] = -1; }),
                 "document boundary 0 is sequence -1"));

  MegatronIndex empty;
  empty.documents = {0};
  CHECK(contains(error_of(empty.bytes(), ""), ".idx has no sequences"));
  CHECK(error_of(good, tokens).empty());
  fs::remove(prefix + ".bin");
  CHECK(contains(complaint([&] { source_of(prefix + ".idx"); }), "corpus.bin"));
}

TEST_SUITE_END();
