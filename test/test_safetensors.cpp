// safetensors: round trips, files written by Python's library, and failures of the writer.
#include <fcntl.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "test/python.h"
#include "test/safetensors_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("safetensors");

namespace {

using namespace llmc_test;
namespace fs = std::filesystem;
using llmc::Shape;
using llmc::TensorDtype;
using llmc::TensorHeader;

std::size_t files_in(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
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

TEST_CASE("tensors of every dtype are read back unchanged") {
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
    const llmc::MappedFile map = file.map(entry);
    REQUIRE(map.bytes().size() == contents[i].size());
    CHECK(std::equal(contents[i].begin(), contents[i].end(),
                     reinterpret_cast<const unsigned char*>(map.bytes().data())));
    CHECK(reinterpret_cast<std::uintptr_t>(map.bytes().data()) %
              static_cast<std::uintptr_t>(llmc::tensor_dtype_bytes(entry.dtype)) ==
          0);
  }
  CHECK(file.find("absent") == nullptr);
  CHECK(complaint([&] { (void)file.get("absent", {}); }) == path + " has no tensor absent");
  CHECK(complaint([&] {
          (void)file.get("f32", {5, 3});
        }) == path + ": tensor f32 has shape (5, 1, 3), expected (5, 3)");
  float number = 0;
  CHECK(complaint([&] {
          file.read_as_float("i64", {1}, &number);
        }).starts_with(path + ": tensor i64 has dtype I64"));
}

TEST_CASE("an element that is not finite is an error that names its index, in every dtype") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("numbers.safetensors");
  // 2 x 1050 elements are more than one piece of the check.
  const llmc::Shape shape = {2, 1050};
  constexpr std::size_t kCount = 2100;
  const auto check = [&]<class Stored>(TensorDtype dtype, Stored one,
                                       const std::vector<std::pair<Stored, const char*>>& wrong) {
    CAPTURE(llmc::tensor_dtype_name(dtype));
    for (const auto& [value, text] : wrong) {
      for (const auto& [index, place] : {std::pair(0u, "[0, 0]"), std::pair(1024u, "[0, 1024]"),
                                         std::pair(2099u, "[1, 1049]")}) {
        std::vector<Stored> numbers(kCount, one);
        numbers[index] = value;
        {
          llmc::SafetensorsWriter writer(path, {{"x", dtype, shape}});
          writer.write("x", std::as_bytes(std::span(numbers)));
          writer.finish();
        }
        std::vector<float> floats(kCount);
        const std::string error = complaint(
            [&] { llmc::SafetensorsFile(path).read_as_float("x", shape, floats.data()); });
        CAPTURE(error);
        CHECK(error.starts_with(path + ": tensor x: element " + place + " is " + text));
      }
    }
  };
  check(TensorDtype::f32, 3.4e38f,
        {{std::nanf(""), "nan, not finite\n"}, {HUGE_VALF, "inf,"}, {-HUGE_VALF, "-inf,"}});
  check(TensorDtype::f64, 1.0,
        {{std::nan(""), "nan,"}, {HUGE_VAL, "inf,"}, {-1e300, "-inf, not finite in fp32"}});
  check(TensorDtype::bf16, std::uint16_t{0x7f7f},
        std::vector<std::pair<std::uint16_t, const char*>>{{0x7fc0, "nan,"}, {0xff80, "-inf,"}});
  check(TensorDtype::f16, std::uint16_t{0x7bff},
        std::vector<std::pair<std::uint16_t, const char*>>{{0x7e01, "nan,"}, {0x7c00, "inf,"}});
  CHECK(llmc::element_text({2, 3, 4}, 23) == "[1, 2, 3]");
  CHECK(llmc::element_text({}, 0) == "[]");
}

TEST_CASE("tensors written whole or in pieces have the same bytes") {
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
  // The exact header text of the format.
  std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"b\":{\"data_offsets\":[0,12],\"dtype\":\"F32\",\"shape\":[3]},"
      "\"a\":{\"data_offsets\":[12,20],\"dtype\":\"F32\",\"shape\":[2]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(bytes.substr(8, length) == header);
}

TEST_CASE("fp16, bf16 and fp64 values are converted to the nearest floats") {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  // Offset by one byte, like a file whose tensors are not aligned.
  std::vector<std::byte> bytes(bits.size() * 2 + 1);
  std::memcpy(bytes.data() + 1, bits.data(), bits.size() * 2);
  const auto source = std::span<const std::byte>(bytes).subspan(1);
  std::vector<float> half(bits.size());
  std::vector<float> brain(bits.size());
  REQUIRE(llmc::convert_to_float(TensorDtype::f16, source, half.data()));
  REQUIRE(llmc::convert_to_float(TensorDtype::bf16, source, brain.data()));
  int num_wrong = 0;
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
    const auto same = [](float actual, double expected) {
      if (std::isnan(expected)) return std::isnan(actual);
      return static_cast<double>(actual) == expected &&
             std::signbit(actual) == std::signbit(expected);
    };
    num_wrong += !same(half[i], value(5, 10));
    num_wrong += !same(brain[i], value(8, 7));
  }
  CHECK(num_wrong == 0);

  const double doubles[] = {0.1, -3.0, 1e300, 1e-300};
  float floats[4];
  REQUIRE(llmc::convert_to_float(TensorDtype::f64, std::as_bytes(std::span(doubles)), floats));
  CHECK(floats[0] == 0.1f);
  CHECK(floats[1] == -3.0f);
  CHECK(std::isinf(floats[2]));
  CHECK(floats[3] == 0.0f);
}

TEST_CASE("the writer names the missing tensor and leaves no file") {
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
          path + ": tensor b is written, but the next tensor is a");
    writer.write("a", values, 4);
    CHECK(complaint([&] { writer.write("b", values, 4); }).find("the next tensor is a") !=
          std::string::npos);
    CHECK(complaint([&] { writer.write("a", values, 8); }) ==
          path + ": too many bytes for tensor a");
    CHECK(complaint([&] { writer.finish(); }) == path + ": tensor a is not complete");
    writer.write("a", values, 4);
    writer.write("b", values, 4);
    CHECK(complaint([&] { writer.write("b", values, 4); }) ==
          path + ": tensor b is written after the last one");
    CHECK(llmc::read_file(path) == old);
  }
  CHECK(files_in(directory.path()) == 1);
  CHECK(llmc::read_file(path) == old);

  const auto header = [](const std::vector<TensorHeader>& list) {
    return complaint([&] { llmc::safetensors_header(list, {}); });
  };
  CHECK(header({{"a", TensorDtype::u8, {1}}, {"a", TensorDtype::u8, {1}}}) ==
        "tensor a is listed twice");
  CHECK(header({{"__metadata__", TensorDtype::u8, {1}}}) == "tensor __metadata__ is listed twice");
  CHECK(header({{"a", TensorDtype::u8, {1}}, {"b", TensorDtype::f32, {1}}})
            .starts_with("tensor b would not be aligned"));
  CHECK(header({{"a", TensorDtype::u8, {-1}}}) == "tensor a: impossible shape (-1)");
  CHECK(header({{"a", TensorDtype::f64, {1LL << 61}}}).starts_with("tensor a: impossible"));
}

TEST_CASE("a full disk or a bad path is an error and changes no file") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("x.safetensors");
  write_pattern(path, {{"old", TensorDtype::u8, {3}}});
  const std::string old = llmc::read_file(path);
  const std::vector<TensorHeader> large = {{"a", TensorDtype::u8, {100'000}}};

  // A limit on the file size makes writes fail, like a full disk.
  struct rlimit old_limit {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = old_limit;
  limit.rlim_cur = 50'000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const std::string reserve_error = complaint([&] { llmc::SafetensorsWriter(path, large); });
  const std::string write_error =
      complaint([&] { llmc::write_file(path, std::string(100'000, 'x')); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, handler);
  CAPTURE(reserve_error);
  CHECK(reserve_error.find("for " + path + ": File too large") != reserve_error.npos);
  CHECK(reserve_error.starts_with("cannot reserve 100.1"));
  CHECK(write_error.starts_with("cannot write " + path + ": File too large"));
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
  // A rename would replace the device with a regular file.
  CHECK(complaint([&] { llmc::write_file("/dev/null", ""); }) ==
        "cannot write /dev/null: it exists and is not a regular file");
}

TEST_CASE("a symbolic link stays a link") {
  const llmc_test::TemporaryDirectory directory;
  llmc::write_file(directory.file("real"), "old");
  fs::create_symlink("real", directory.file("link"));
  llmc::write_file(directory.file("link"), "new");
  CHECK(fs::is_symlink(directory.file("link")));
  CHECK(llmc::read_file(directory.file("real")) == "new");
  CHECK(files_in(directory.path()) == 2);
}

TEST_CASE("Python's safetensors reads our files, and we read its files") {
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
  const std::string output = llmc_test::run_python(R"(
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
  CHECK(output ==
        "[('a.weight', 'float32', (3, 4)), ('bytes', 'uint8', (3,)), ('half', 'float16', (5,)), "
        "('none', 'float16', (0,)), ('one', 'float16', ())]\n"
        "[1, 2, 255] [1.0, -2.0, 5.960464477539063e-08, 65504.0, -0.0]\n"
        "{'format': 'pt'}\n");
  const llmc::SafetensorsFile python_file(directory.path() / "theirs.safetensors");
  CHECK(python_file.metadata() == std::map<std::string, std::string>{{"k", "v"}});
  std::vector<float> actual(12);
  python_file.read_as_float("x", {3, 4}, actual.data());
  CHECK(actual == values);
  python_file.read_as_float("d", {3, 4}, actual.data());
  CHECK(actual == values);
  actual.resize(5);
  python_file.read_as_float("h", {5}, actual.data());
  CHECK(actual == std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f, -0.0f});
  CHECK(python_file.get("i", {2, 3}).dtype == TensorDtype::i64);
  CHECK(python_file.get("b", {2}).dtype == TensorDtype::boolean);
  CHECK(python_file.get("e", {2, 0}).size == 0);
}

TEST_SUITE_END();
