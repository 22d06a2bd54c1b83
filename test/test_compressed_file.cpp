// Texts in gzip and zstd files: unpacked in full, or rejected with the byte of the fault.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/documents.h"
#include "test/compressed_samples.h"
#include "test/data_source_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("compressed_file");

using namespace llmc;
using namespace llmc_test;

namespace {

std::string unpacked(const std::string& bytes) {
  std::string text;
  decompress(std::as_bytes(std::span(bytes)), "a.gz", [&](std::span<const std::byte> piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return true;
  });
  return text;
}

std::string fault(const std::string& bytes) {
  return complaint([&] { unpacked(bytes); });
}

// Compresses badly, so that truncation and damage hit its data.
std::string varied_text(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; text.size() < size; ++i)
    text += std::to_string(i * i * 7919 % 100003) + " ";
  return text;
}

using Pack = std::function<std::string(const std::string&)>;
const std::vector<std::pair<std::string, Pack>> kFormats = {{"gzip", gzip}, {"zstd", zstd}};

}  // namespace

TEST_CASE("one or several members or frames of any length are one text") {
  for (const auto& [name, pack] : kFormats) {
    CAPTURE(name);
    const std::string large = varied_text(700'000);
    CHECK(unpacked(pack("")) == "");
    CHECK(unpacked(pack("abc")) == "abc");
    CHECK(unpacked(pack(large)) == large);
    CHECK(unpacked(pack("a") + pack("") + pack(large) + pack("b")) == "a" + large + "b");
    CHECK(unpacked(pack(std::string(3'000'000, 'x'))).size() == 3'000'000);
  }
  const std::string skippable("\x50\x2a\x4d\x18\3\0\0\0xyz", 11);
  CHECK(unpacked(skippable + zstd("abc") + skippable) == "abc");
}

TEST_CASE("the first bytes decide whether a file is compressed") {
  const auto compression = [](const std::string& bytes) {
    return compression_of(std::as_bytes(std::span(bytes)));
  };
  CHECK(compression(gzip("a")) == Compression::gzip);
  CHECK(compression(zstd("a")) == Compression::zstd);
  for (const char* text : {"", "a", "\x1f", "\x1f\x8b", "P*M", "{\"text\": 1}"}) {
    CHECK(compression(text) == Compression::none);
  }
  CHECK(uncompressed_name("a.jsonl.gz") == "a.jsonl");
  CHECK(uncompressed_name("d/a.txt.zst") == "d/a.txt");
  CHECK(uncompressed_name("a.gz.txt") == "a.gz.txt");
}

TEST_CASE("a file that is truncated anywhere is an error") {
  for (const auto& [name, pack] : kFormats) {
    CAPTURE(name);
    const std::string packed = pack(varied_text(3000));
    for (std::size_t size = 4; size < packed.size(); ++size) {
      CHECK(contains(fault(packed.substr(0, size)), "a.gz is truncated: its " + name +
                                                        " data do not end within its " +
                                                        std::to_string(size) + " bytes"));
    }
    CHECK(contains(fault(packed + packed.substr(0, packed.size() / 2)), "is truncated"));
  }
}

TEST_CASE("damage and bytes that follow the data are errors with their place") {
  for (const auto& [name, pack] : kFormats) {
    CAPTURE(name);
    const std::string packed = pack(varied_text(3000));
    for (std::size_t at = packed.size() - 4; at < packed.size(); ++at) {  // a checksum, or a length
      std::string damaged = packed;
      damaged[at] ^= 1;
      CHECK(contains(fault(damaged), "a.gz is damaged: " + name + " data at byte "));
    }
    for (const std::string& tail :
         {std::string("x"), std::string(512, '\0'), std::string("text")}) {
      CHECK(contains(fault(packed + tail), "a.gz has " + std::to_string(tail.size()) +
                                               " bytes after its " + name + " data, from byte " +
                                               std::to_string(packed.size())));
    }
  }
  CHECK(contains(fault(gzip("a") + zstd("b")), "bytes after its gzip data"));
}

TEST_CASE("a zstd window of up to 128 MiB is accepted") {
  // A frame of one empty block. The exponent of its window is in the upper five bits of the sixth
  // byte: 2^(10 + exponent) bytes.
  const auto frame = [](int exponent) {
    const char window = static_cast<char>(exponent << 3);
    return std::string("\x28\xb5\x2f\xfd\0", 5) + window + std::string("\1\0\0", 3);
  };
  CHECK(unpacked(frame(17)) == "");
  CHECK(contains(fault(frame(18)), "a.gz needs a zstd window of more than 128 MiB"));
}

TEST_CASE("compressed texts are read like plain ones, by training and by tokenize") {
  const TemporaryDirectory directory;
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
  write(directory.file("plain.jsonl"), lines);
  write(directory.file("plain.txt"), lines);
  for (const auto& [name, pack] : kFormats) {
    CAPTURE(name);
    const std::string ending = name == "gzip" ? ".gz" : ".zst";
    for (const std::string& kind : {std::string(".jsonl"), std::string(".txt")}) {
      const Ids expected = all_tokens(source_of(directory.file("plain" + kind)));
      // Compressed data are recognised without the ending of their name, too.
      for (const std::string& file :
           {directory.file("a" + kind + ending), directory.file("a" + kind)}) {
        CAPTURE(file);
        write(file, pack(lines));
        CHECK(all_tokens(source_of(file)) == expected);
        DocumentReader reader({file}, {}, directory.path());
        Document document;
        std::string storage;
        REQUIRE(reader.next(document));
        CHECK(reader.text_of(document, storage) == (kind == ".txt" ? lines : "ab"));
      }
    }
    const std::string torn = directory.file("torn.jsonl" + ending);
    write(torn, pack(varied_text(5000)).substr(0, 1000));
    CHECK(contains(complaint([&] { source_of(torn); }), torn + " is truncated"));
    CHECK(contains(complaint([&] { DocumentReader({torn}, {}, directory.path()); }),
                   torn + " is truncated"));
    write(directory.file("t.bin" + ending), pack("tokens"));
    CHECK(contains(complaint([&] { source_of(directory.file("t.bin" + ending)); }),
                   "is compressed, and token files are mapped"));
  }
}

TEST_SUITE_END();
