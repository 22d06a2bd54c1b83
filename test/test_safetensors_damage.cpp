// Invalid safetensors files of every kind.
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/safetensors.h"
#include "test/safetensors_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("safetensors");

namespace {

using namespace llmc_test;
using llmc::TensorDtype;

// A file with this header text and this many bytes of tensors.
std::string raw_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, 'x');
}

llmc::SafetensorsContent parse(const std::string& bytes) {
  return llmc::parse_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

std::string tensor_json(const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

}  // namespace

TEST_CASE("the error for an invalid file names the file, the tensor and the problem") {
  const std::string good = tensor_json("F32", "[2]", "[0,8]");
  CHECK(complaint([&] { parse(raw_file("{\"a\":" + good + "}", 8)); }) == "");
  CHECK(complaint([&] { parse(raw_file("{\"a\":" + good + "}   ", 8)); }) == "");
  CHECK(complaint([&] { parse(raw_file("{}", 0)); }) == "");
  CHECK(parse(raw_file("{\"a\":" + good + ",\"__metadata__\":{\"k\":\"v\"}}", 8)).tensors.size() ==
        1);

  struct Case {
    std::string bytes;
    std::string phrase;
  };
  const auto with = [](const std::string& tensors, std::size_t data = 8) {
    return raw_file("{" + tensors + "}", data);
  };
  const auto length = [](std::uint64_t n) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &n, 8);
    return bytes + "{}";
  };
  const std::string t = "\"t\":";
  const Case cases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {length(3), "should have 3 bytes, the file has 2"},
      {length(100'000'001), "is longer than the format allows"},
      {length(~0ull), "a header of 18446744073709551615 bytes"},
      {length(0), "does not begin with '{'"},
      {raw_file(" {}", 0), "does not begin with '{'"},
      {raw_file("{]", 0), "not valid JSON (at byte 2)"},
      {raw_file("{\"a\xff\":1}", 0), "not valid JSON"},
      {raw_file("{\"a\":1e999}", 0), "not valid JSON"},
      {raw_file("{} x", 0), "not valid JSON"},
      {raw_file("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0),
       "nested more than 32 levels"},
      {with("\"a\":" + good + ",\"a\":" + good), "the key \"a\" twice"},
      {with("\"__metadata__\":3"), "__metadata__ is not"},
      {with("\"__metadata__\":{\"k\":3}"), "__metadata__ k is not a string"},
      {with(t + "[]"), "tensor t: its description is not"},
      {with(t + "{}"), "tensor t: its description has no \"dtype\""},
      {with(t + "{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "the key \"dtype\" twice"},
      {with(t + "{\"dtype\":\"F32\",\"shape\":[2]}"), "has no \"data_offsets\""},
      {with(t + tensor_json("F31", "[2]", "[0,8]")), "tensor t: unknown dtype F31"},
      {with(t + "{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}"), "tensor t: dtype is not"},
      {with(t + tensor_json("F32", "2", "[0,8]")), "tensor t: shape is not a list"},
      {with(t + tensor_json("F32", "[-2]", "[0,8]")), "tensor t: shape is -2"},
      {with(t + tensor_json("F32", "[2.0]", "[0,8]")), "tensor t: shape is 2.0"},
      {with(t + tensor_json("F32", "[\"2\"]", "[0,8]")), "tensor t: shape is \"2\""},
      {with(t + tensor_json("F32", "[9223372036854775808]", "[0,8]")),
       "tensor t: shape is 92233720"},
      {with(t + tensor_json("F32", "[4294967296,4294967296]", "[0,8]")), "tensor t: shape (42949"},
      {with(t + tensor_json("F32", "[4611686018427387904]", "[0,8]")), "overflows"},
      {with(t + tensor_json("F32", "[2]", "[0,8,8]")), "tensor t: data_offsets are not two"},
      {with(t + tensor_json("F32", "[2]", "[8,0]")), "tensor t: data_offsets (8, 0) are outside"},
      {with(t + tensor_json("F32", "[2]", "[0,8]"), 7),
       "tensor t: data_offsets (0, 8) are outside"},
      {with(t + tensor_json("F32", "[2]", "[0,18446744073709551615]")),
       "tensor t: data_offsets is"},
      {with(t + tensor_json("F32", "[3]", "[0,8]")),
       "tensor t: data_offsets span 8 bytes, but dtype"},
      {with(t + tensor_json("F16", "[2]", "[0,8]")), "dtype F16 and shape (2) need 4"},
      {with(t + tensor_json("F32", "[2]", "[4,12]"), 12), "tensor t: a gap before its bytes"},
      {with("\"a\":" + good + "," + t + tensor_json("F32", "[2]", "[12,20]"), 20),
       "tensor t: a gap"},
      {with("\"a\":" + good + "," + t + tensor_json("F32", "[2]", "[4,12]"), 12),
       "tensor t: its bytes"},
      {with("\"a\":" + good + "," + t + tensor_json("F32", "[0]", "[4,4]"), 8), "bytes overlap"},
      {with("\"a\":" + good, 9), "1 bytes at the end belong to no tensor"},
      {with("", 8), "8 bytes at the end belong to no tensor"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes.substr(0, 200));
    const std::string message = complaint([&] { parse(c.bytes); });
    CAPTURE(message);
    CHECK(message.starts_with("x.safetensors"));
    CHECK(message.find(c.phrase) != message.npos);
  }
}

TEST_CASE("the error for a missing file, a directory or a short file names its path") {
  const llmc_test::TemporaryDirectory directory;
  const auto open = [](const std::string& path) {
    return complaint([&] { llmc::SafetensorsFile{path}; });
  };
  CHECK(open(directory.file("none")) ==
        "cannot open " + directory.file("none") + ": No such file or directory");
  CHECK(open(directory.path()) == directory.path().string() + " is not a regular file");
  std::ofstream(directory.file("empty"));
  CHECK(open(directory.file("empty")).starts_with(directory.file("empty") + ": too short"));
}

TEST_CASE("mutated files are accepted or rejected, without reading outside them") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("x");
  write_pattern(path, {{"wte.weight", TensorDtype::f32, {3, 4}},
                       {"h.0.attn.c_attn.bias", TensorDtype::bf16, {5}},
                       {"empty", TensorDtype::u8, {0}},
                       {"ids", TensorDtype::u8, {3}}});
  const std::string good = llmc::read_file(path);
  // Pieces of text that direct mutations towards input that parsers often handle wrongly.
  const std::string pieces[] = {"9223372036854775807",
                                "18446744073709551616",
                                "-1",
                                "[",
                                "]",
                                "{",
                                "}",
                                "\"",
                                "\\u0000",
                                "\\ud800",
                                "null",
                                "1e308",
                                "0",
                                ",",
                                ":",
                                "\"shape\":[]",
                                std::string(1, '\0'),
                                "\xff\xfe"};
  std::mt19937_64 random(1);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int num_read = 0;
  int num_rejected = 0;
  const int rounds = llmc_test::tiny_shapes() ? 3000 : 20000;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = good;
    for (std::size_t edits = 1 + pick(3); edits > 0; --edits) {
      const std::size_t at = pick(bytes.size());
      switch (pick(5)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + pick(8));
          break;
        case 2:
          bytes.insert(at, pieces[pick(std::size(pieces))]);
          break;
        case 3:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, bytes.substr(pick(bytes.size()), pick(40)));
          break;
      }
      if (bytes.empty()) bytes = "{";
    }
    // Half of the files get a matching header length, so that later checks are reached.
    if (bytes.size() > 8 && pick(2) == 0) {
      const std::uint64_t length =
          std::min<std::uint64_t>(bytes.rfind('}') + 1 - 8, bytes.size() - 8);
      std::memcpy(bytes.data(), &length, 8);
    }
    try {
      const std::vector<char> copy(bytes.begin(), bytes.end());  // exact size, for the sanitizers
      const auto file = std::as_bytes(std::span(copy));
      std::uint64_t sum = 0;
      for (const llmc::TensorEntry& tensor : llmc::parse_safetensors(file, "x").tensors) {
        for (const std::byte b : tensor.in(file)) sum += static_cast<std::uint64_t>(b);
        std::vector<float> floats(static_cast<std::size_t>(*llmc::checked_count(tensor.shape)));
        llmc::convert_to_float(tensor.dtype, tensor.in(file), floats.data());
      }
      num_read += sum < ~0ull ? 1 : 0;
    } catch (const llmc::Error&) {
      ++num_rejected;
    }
  }
  MESSAGE("read " << num_read << ", rejected " << num_rejected);
  CHECK(num_read + num_rejected == rounds);
  CHECK(num_read > 0);
  CHECK(num_rejected > rounds / 2);
}

TEST_SUITE_END();
