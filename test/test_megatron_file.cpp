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

TEST_SUITE_END();
