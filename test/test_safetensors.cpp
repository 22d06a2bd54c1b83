// safetensors: round trips, files by Python's library, and files that lie in every way they can.
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "llmc/io/safetensors.h"
#include "test/python.h"
#include "test/support.h"

TEST_SUITE_BEGIN("safetensors");

namespace {

using llmc_test::complaint;
namespace fs = std::filesystem;
using llmc::Shape;
using llmc::TensorDtype;
using llmc::TensorHeader;

// What an action complains of; empty when it does not.
std::size_t files_in(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

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

std::string described(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

// Writes tensors whose byte i is (i * 7 + place of the tensor) mod 256.
std::vector<std::vector<unsigned char>> write_pattern(const fs::path& path,
                                                      const std::vector<TensorHeader>& tensors) {
  std::vector<std::vector<unsigned char>> contents;
  llmc::SafetensorsWriter writer(path, tensors);
  for (const TensorHeader& tensor : tensors) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 + contents.size());
    }
    writer.write(tensor.name, std::as_bytes(std::span(bytes)));
    contents.push_back(std::move(bytes));
  }
  writer.finish();
  return contents;
}

const std::vector<TensorHeader> kEveryDtype = {{"a64", TensorDtype::f64, {2, 3}},
                                               {"i64", TensorDtype::i64, {1}},
                                               {"u64", TensorDtype::u64, {2}},
                                               {"f32", TensorDtype::f32, {5, 1, 3}},
                                               {"i32", TensorDtype::i32, {3}},
                                               {"u32", TensorDtype::u32, {1}},
                                               {"f16", TensorDtype::f16, {4, 2}},
                                               {"bf16", TensorDtype::bf16, {7}},
                                               {"i16", TensorDtype::i16, {2}},
                                               {"u16", TensorDtype::u16, {}},
                                               {"f8a", TensorDtype::f8_e5m2, {3}},
                                               {"f8b", TensorDtype::f8_e4m3, {3}},
                                               {"i8", TensorDtype::i8, {11}},
                                               {"none", TensorDtype::f32, {0, 4}},
                                               {"u8", TensorDtype::u8, {1, 1, 1}},
                                               {"flag", TensorDtype::boolean, {9}},
                                               {"a \"b\"\n\xc3\xa9", TensorDtype::u8, {2}}};

}  // namespace

TEST_CASE("what is written comes back, for every dtype") {
  const llmc_test::TemporaryDirectory directory;
  std::vector<TensorHeader> tensors = kEveryDtype;
  // An empty fp32 tensor after an odd number of bytes would not be aligned.
  std::erase_if(tensors, [](const TensorHeader& tensor) { return tensor.name == "none"; });
  tensors.insert(tensors.begin(), {"none", TensorDtype::f32, {0, 4}});
  const std::string path = directory.file("x.safetensors");
  const auto contents = write_pattern(path, tensors);
  CHECK(files_in(directory.path()) == 1);

  const llmc::SafetensorsFile file(path);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.tensors().size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CAPTURE(tensors[i].name);
    CHECK(file.names()[i] == tensors[i].name);
    const llmc::TensorEntry& entry = file.get(tensors[i].name, tensors[i].shape);
    CHECK(static_cast<const TensorHeader&>(entry) == tensors[i]);
    REQUIRE(entry.bytes.size() == contents[i].size());
    CHECK(std::equal(contents[i].begin(), contents[i].end(),
                     reinterpret_cast<const unsigned char*>(entry.bytes.data())));
    CHECK(reinterpret_cast<std::uintptr_t>(entry.bytes.data()) %
              static_cast<std::uintptr_t>(llmc::tensor_dtype_bytes(entry.dtype)) ==
          0);
  }
  CHECK(file.find("absent") == nullptr);
  CHECK(complaint([&] { (void)file.get("absent", {}); }) == path + " has no tensor absent");
  CHECK(complaint([&] {
          (void)file.get("f32", {5, 3});
        }) == path + ": tensor f32 has shape (5, 1, 3), wanted is (5, 3)");
  float number = 0;
  CHECK(complaint([&] {
          file.read_as_float("i64", {1}, &number);
        }).starts_with(path + ": tensor i64 has dtype I64"));
}

TEST_CASE("the same tensors give the same bytes, whole or in pieces") {
  const llmc_test::TemporaryDirectory directory;
  const std::vector<TensorHeader> tensors = {{"b", TensorDtype::f32, {3}},
                                             {"a", TensorDtype::f32, {2}}};
  const float values[] = {1, 2, 3, 4, 5};
  {
    llmc::SafetensorsWriter writer(directory.file("whole"), tensors);
    writer.write("b", values, 12);
    writer.write("a", values + 3, 8);
    writer.finish();
  }
  std::uint64_t checksum = 0;
  {
    llmc::SafetensorsWriter writer(directory.file("pieces"), tensors);
    for (int i = 0; i < 3; ++i) writer.write("b", values + i, 4);
    for (int i = 3; i < 5; ++i) writer.write("a", values + i, 4);
    writer.finish();
    checksum = writer.checksum();
  }
  const std::string bytes = llmc::read_file(directory.file("whole"));
  CHECK(bytes == llmc::read_file(directory.file("pieces")));
  CHECK(checksum == llmc::checksum_of(bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.size() == 8 + length + 20);
  // The format, letter for letter.
  std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"b\":{\"data_offsets\":[0,12],\"dtype\":\"F32\",\"shape\":[3]},"
      "\"a\":{\"data_offsets\":[12,20],\"dtype\":\"F32\",\"shape\":[2]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(bytes.substr(8, length) == header);
}

TEST_CASE("halves, bfloat16 and doubles become the right floats") {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  // One byte off, as in a file whose tensors are not aligned.
  std::vector<std::byte> bytes(bits.size() * 2 + 1);
  std::memcpy(bytes.data() + 1, bits.data(), bits.size() * 2);
  const auto source = std::span<const std::byte>(bytes).subspan(1);
  std::vector<float> half(bits.size());
  std::vector<float> brain(bits.size());
  REQUIRE(llmc::convert_to_float(TensorDtype::f16, source, half.data()));
  REQUIRE(llmc::convert_to_float(TensorDtype::bf16, source, brain.data()));
  int wrong = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    // The definition: sign, 5 (8) bits of exponent, 10 (7) of fraction.
    const auto value = [&](int exponent_bits, int fraction_bits) {
      const int exponent = (bits[i] >> fraction_bits) & ((1 << exponent_bits) - 1);
      const int fraction = bits[i] & ((1 << fraction_bits) - 1);
      const int bias = (1 << (exponent_bits - 1)) - 1;
      const double sign = (bits[i] & 0x8000) != 0 ? -1.0 : 1.0;
      if (exponent == (1 << exponent_bits) - 1) {
        return fraction == 0 ? sign * INFINITY : std::nan("");
      }
      const double lead = exponent == 0 ? 0.0 : 1.0;
      return sign *
             std::ldexp(lead + std::ldexp(fraction, -fraction_bits), std::max(exponent, 1) - bias);
    };
    const auto same = [](float got, double want) {
      if (std::isnan(want)) return std::isnan(got);
      return static_cast<double>(got) == want && std::signbit(got) == std::signbit(want);
    };
    wrong += !same(half[i], value(5, 10));
    wrong += !same(brain[i], value(8, 7));
  }
  CHECK(wrong == 0);

  const double doubles[] = {0.1, -3.0, 1e300, 1e-300};
  float floats[4];
  REQUIRE(llmc::convert_to_float(TensorDtype::f64, std::as_bytes(std::span(doubles)), floats));
  CHECK(floats[0] == 0.1f);
  CHECK(floats[1] == -3.0f);
  CHECK(std::isinf(floats[2]));
  CHECK(floats[3] == 0.0f);
}

TEST_CASE("a wrong file is one clear error") {
  const std::string good = described("F32", "[2]", "[0,8]");
  CHECK(complaint([&] { parse(raw_file("{\"a\":" + good + "}", 8)); }) == "");
  CHECK(complaint([&] { parse(raw_file("{\"a\":" + good + "}   ", 8)); }) == "");
  CHECK(complaint([&] { parse(raw_file("{}", 0)); }) == "");
  CHECK(parse(raw_file("{\"a\":" + good + ",\"__metadata__\":{\"k\":\"v\"}}", 8)).tensors.size() ==
        1);

  struct Case {
    std::string bytes;
    std::string says;
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
      {length(100'000'001), "more than the format allows"},
      {length(~0ull), "a header of 18446744073709551615 bytes"},
      {length(0), "does not begin with '{'"},
      {raw_file(" {}", 0), "does not begin with '{'"},
      {raw_file("{]", 0), "not valid JSON (at byte 2)"},
      {raw_file("{\"a\xff\":1}", 0), "not valid JSON"},
      {raw_file("{\"a\":1e999}", 0), "not valid JSON"},
      {raw_file("{} x", 0), "not valid JSON"},
      {raw_file("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0),
       "nested too deeply"},
      {with("\"a\":" + good + ",\"a\":" + good), "the key \"a\" twice"},
      {with("\"__metadata__\":3"), "__metadata__ is not"},
      {with("\"__metadata__\":{\"k\":3}"), "__metadata__ k is not a string"},
      {with(t + "[]"), "tensor t: its description is not"},
      {with(t + "{}"), "tensor t: its description has no \"dtype\""},
      {with(t + "{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "the key \"dtype\" twice"},
      {with(t + "{\"dtype\":\"F32\",\"shape\":[2]}"), "has no \"data_offsets\""},
      {with(t + described("F31", "[2]", "[0,8]")), "tensor t: unknown dtype F31"},
      {with(t + "{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}"), "tensor t: dtype is not"},
      {with(t + described("F32", "2", "[0,8]")), "tensor t: shape is not a list"},
      {with(t + described("F32", "[-2]", "[0,8]")), "tensor t: shape is -2"},
      {with(t + described("F32", "[2.0]", "[0,8]")), "tensor t: shape is 2.0"},
      {with(t + described("F32", "[\"2\"]", "[0,8]")), "tensor t: shape is \"2\""},
      {with(t + described("F32", "[9223372036854775808]", "[0,8]")), "tensor t: shape is 92233720"},
      {with(t + described("F32", "[4294967296,4294967296]", "[0,8]")), "tensor t: shape (42949"},
      {with(t + described("F32", "[4611686018427387904]", "[0,8]")), "overflows"},
      {with(t + described("F32", "[2]", "[0,8,8]")), "tensor t: data_offsets are not two"},
      {with(t + described("F32", "[2]", "[8,0]")), "tensor t: data_offsets (8, 0) are outside"},
      {with(t + described("F32", "[2]", "[0,8]"), 7), "tensor t: data_offsets (0, 8) are outside"},
      {with(t + described("F32", "[2]", "[0,18446744073709551615]")), "tensor t: data_offsets is"},
      {with(t + described("F32", "[3]", "[0,8]")),
       "tensor t: data_offsets span 8 bytes, but dtype"},
      {with(t + described("F16", "[2]", "[0,8]")), "dtype F16 and shape (2) need 4"},
      {with(t + described("F32", "[2]", "[4,12]"), 12), "tensor t: a gap before its bytes"},
      {with("\"a\":" + good + "," + t + described("F32", "[2]", "[12,20]"), 20), "tensor t: a gap"},
      {with("\"a\":" + good + "," + t + described("F32", "[2]", "[4,12]"), 12),
       "tensor t: its bytes"},
      {with("\"a\":" + good + "," + t + described("F32", "[0]", "[4,4]"), 8), "bytes overlap"},
      {with("\"a\":" + good, 9), "1 bytes at the end belong to no tensor"},
      {with("", 8), "8 bytes at the end belong to no tensor"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes.substr(0, 200));
    const std::string said = complaint([&] { parse(c.bytes); });
    CAPTURE(said);
    CHECK(said.starts_with("x.safetensors"));
    CHECK(said.find(c.says) != said.npos);
  }
}

TEST_CASE("a missing file, a directory and a short file are named") {
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

TEST_CASE("mutated files are read or refused, never believed") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("x");
  write_pattern(path, {{"wte.weight", TensorDtype::f32, {3, 4}},
                       {"h.0.attn.c_attn.bias", TensorDtype::bf16, {5}},
                       {"empty", TensorDtype::u8, {0}},
                       {"ids", TensorDtype::u8, {3}}});
  const std::string good = llmc::read_file(path);
  // Pieces that steer a mutation towards what parsers trip over.
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
  int read = 0;
  int refused = 0;
  const int rounds = llmc_test::tiny() ? 3000 : 20000;
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
    // Half of them with a length that fits, so that the fault is deeper.
    if (bytes.size() > 8 && pick(2) == 0) {
      const std::uint64_t length =
          std::min<std::uint64_t>(bytes.rfind('}') + 1 - 8, bytes.size() - 8);
      std::memcpy(bytes.data(), &length, 8);
    }
    try {
      std::vector<char> exact(bytes.begin(), bytes.end());  // no spare byte for a sanitizer to miss
      const auto content = llmc::parse_safetensors(std::as_bytes(std::span(exact)), "x");
      std::uint64_t sum = 0;
      for (const llmc::TensorEntry& tensor : content.tensors) {
        for (const std::byte b : tensor.bytes) sum += static_cast<std::uint64_t>(b);
        std::vector<float> floats(static_cast<std::size_t>(*llmc::checked_count(tensor.shape)));
        llmc::convert_to_float(tensor.dtype, tensor.bytes, floats.data());
      }
      read += sum < ~0ull ? 1 : 0;
    } catch (const llmc::Error&) {
      ++refused;
    }
  }
  MESSAGE("read " << read << ", refused " << refused);
  CHECK(read + refused == rounds);
  CHECK(read > 0);
  CHECK(refused > rounds / 2);
}

TEST_CASE("the writer says what was forgotten, and leaves nothing") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("x.safetensors");
  write_pattern(path, {{"old", TensorDtype::u8, {3}}});
  const std::string old = llmc::read_file(path);
  const std::vector<TensorHeader> tensors = {{"a", TensorDtype::f32, {2}},
                                             {"b", TensorDtype::f32, {1}}};
  const float values[3] = {};
  {
    llmc::SafetensorsWriter writer(path, tensors);
    CHECK(files_in(directory.path()) == 2);
    CHECK(complaint([&] { writer.write("b", values, 4); }) ==
          path + ": tensor b is written where a must come");
    writer.write("a", values, 4);
    CHECK(complaint([&] { writer.write("b", values, 4); }).find("where a must come") !=
          std::string::npos);
    CHECK(complaint([&] { writer.write("a", values, 8); }) ==
          path + ": too many bytes for tensor a");
    CHECK(complaint([&] { writer.finish(); }) == path + ": tensor a is not complete");
    writer.write("a", values, 4);
    writer.write("b", values, 4);
    CHECK(complaint([&] { writer.write("b", values, 4); }) ==
          path + ": tensor b after the last one");
    CHECK(llmc::read_file(path) == old);
  }
  CHECK(files_in(directory.path()) == 1);
  CHECK(llmc::read_file(path) == old);

  const auto header = [](const std::vector<TensorHeader>& list) {
    return complaint([&] { llmc::safetensors_header(list, {}); });
  };
  CHECK(header({{"a", TensorDtype::u8, {1}}, {"a", TensorDtype::u8, {1}}}) ==
        "tensor a is given twice");
  CHECK(header({{"__metadata__", TensorDtype::u8, {1}}}) == "tensor __metadata__ is given twice");
  CHECK(header({{"a", TensorDtype::u8, {1}}, {"b", TensorDtype::f32, {1}}})
            .starts_with("tensor b would not be aligned"));
  CHECK(header({{"a", TensorDtype::u8, {-1}}}) == "tensor a: impossible shape (-1)");
  CHECK(header({{"a", TensorDtype::f64, {1LL << 61}}}).starts_with("tensor a: impossible"));
}

TEST_CASE("a full disk and a bad path are clear errors that change nothing") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("x.safetensors");
  write_pattern(path, {{"old", TensorDtype::u8, {3}}});
  const std::string old = llmc::read_file(path);
  const std::vector<TensorHeader> large = {{"a", TensorDtype::u8, {100'000}}};

  // A limit on file sizes fails writes as a full disk does.
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limited = before;
  limited.rlim_cur = 50'000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limited) == 0);
  const std::string early = complaint([&] { llmc::SafetensorsWriter(path, large); });
  const std::string late = complaint([&] { llmc::write_file(path, std::string(100'000, 'x')); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CAPTURE(early);
  CHECK(early.find("for " + path + ": File too large") != early.npos);
  CHECK(early.starts_with("cannot reserve 100.1"));
  CHECK(late.starts_with("cannot write " + path + ": File too large"));
  CHECK(llmc::read_file(path) == old);
  CHECK(files_in(directory.path()) == 1);

  if (fs::exists("/dev/full")) {
    const llmc::FileDescriptor full(::open("/dev/full", O_WRONLY));
    const std::string text = "text";
    CHECK(complaint([&] {
            llmc::write_all(full, std::as_bytes(std::span(text)), "/dev/full");
          }).starts_with("cannot write /dev/full: No space left on device"));
  }
  CHECK(complaint([&] { llmc::SafetensorsWriter(path + "/y", large); }) ==
        "cannot write " + path + "/y: Not a directory");
  CHECK(complaint([&] { llmc::SafetensorsWriter(directory.file("no/y"), large); }) ==
        "cannot write " + directory.file("no/y") + ": No such file or directory");
  // A rename would put a file where the device was.
  CHECK(complaint([&] { llmc::write_file("/dev/null", ""); }) ==
        "cannot write /dev/null: it is there and not a regular file");
}

TEST_CASE("a symbolic link stays one") {
  const llmc_test::TemporaryDirectory directory;
  llmc::write_file(directory.file("real"), "old");
  fs::create_symlink("real", directory.file("link"));
  llmc::write_file(directory.file("link"), "new");
  CHECK(fs::is_symlink(directory.file("link")));
  CHECK(llmc::read_file(directory.file("real")) == "new");
  CHECK(files_in(directory.path()) == 2);
}

TEST_CASE("Python's safetensors reads ours and writes what we read") {
  if (!llmc_test::python_has("safetensors, numpy")) {
    llmc_test::skip("no Python with safetensors and numpy (set PYTHON)");
    return;
  }
  const llmc_test::TemporaryDirectory directory;
  const std::vector<TensorHeader> tensors = {{"a.weight", TensorDtype::f32, {3, 4}},
                                             {"half", TensorDtype::f16, {5}},
                                             {"none", TensorDtype::f16, {0}},
                                             {"one", TensorDtype::f16, {}},
                                             {"bytes", TensorDtype::u8, {3}}};
  std::vector<float> values = llmc_test::random_floats(12, 1);
  {
    llmc::SafetensorsWriter writer(directory.file("ours.safetensors"), tensors);
    writer.write("a.weight", values.data(), 48);
    const std::uint16_t halves[6] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555};
    writer.write("half", halves, 10);
    writer.write("one", halves + 5, 2);
    writer.write("bytes", "\x01\x02\xff", 3);
    writer.finish();
  }
  const std::string said = llmc_test::run_python(R"(
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
t = load_file('ours.safetensors')
print(sorted((k, str(v.dtype), v.shape) for k, v in t.items()))
print(t['bytes'].tolist(), t['half'].tolist())
print(safe_open('ours.safetensors', 'numpy').metadata())
r = np.random.default_rng(1)
save_file({'x': t['a.weight'], 'd': t['a.weight'].astype('f8'), 'h': t['half'], 'u': t['bytes'],
           'i': np.arange(6).reshape(2, 3), 'b': np.array([True, False]), 'e': np.zeros((2, 0), 'f4')},
          'theirs.safetensors', metadata={'k': 'v'})
)",
                                                 directory.path());
  CHECK(said ==
        "[('a.weight', 'float32', (3, 4)), ('bytes', 'uint8', (3,)), ('half', 'float16', (5,)), "
        "('none', 'float16', (0,)), ('one', 'float16', ())]\n"
        "[1, 2, 255] [1.0, -2.0, 5.960464477539063e-08, 65504.0, -0.0]\n"
        "{'format': 'pt'}\n");
  const llmc::SafetensorsFile theirs(directory.path() / "theirs.safetensors");
  CHECK(theirs.metadata() == std::map<std::string, std::string>{{"k", "v"}});
  std::vector<float> got(12);
  theirs.read_as_float("x", {3, 4}, got.data());
  CHECK(got == values);
  theirs.read_as_float("d", {3, 4}, got.data());
  CHECK(got == values);
  got.resize(5);
  theirs.read_as_float("h", {5}, got.data());
  CHECK(got == std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f, -0.0f});
  CHECK(theirs.get("i", {2, 3}).dtype == TensorDtype::i64);
  CHECK(theirs.get("b", {2}).dtype == TensorDtype::boolean);
  CHECK(theirs.get("e", {2, 0}).bytes.empty());
}

TEST_SUITE_END();
