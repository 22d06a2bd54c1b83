// Model files of llm.c: every tensor is loaded in our layout, and invalid files are reported.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "llmc/base/number_text.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "test/support.h"

using namespace llmc_test;
using llmc::LlmcModelFile;
using llmc::Shape;

namespace {

constexpr std::int64_t T = 6, V = 11, Vp = 16, L = 3, NH = 2, C = 4;

// Element i of one layer of a tensor, in the order of the file. All elements differ and are exact
// in bf16.
float element(std::int64_t tensor, std::int64_t layer, std::int64_t i) {
  return std::ldexp(1.0f + static_cast<float>(i % 128) / 128.0f,
                    static_cast<int>(i / 128 - 8 * tensor + 2 * layer));
}

struct Part {
  std::string name;  // follows "h.N." if `layers` > 1
  std::int64_t rows, columns, layers;
};

// The tensors in the format's order and layout: matrices are (out, in), embeddings are padded.
const std::vector<Part> kParts = {{"wte.weight", Vp, C, 1},
                                  {"wpe.weight", T, C, 1},
                                  {"ln_1.weight", C, 1, L},
                                  {"ln_1.bias", C, 1, L},
                                  {"attn.c_attn.weight", 3 * C, C, L},
                                  {"attn.c_attn.bias", 3 * C, 1, L},
                                  {"attn.c_proj.weight", C, C, L},
                                  {"attn.c_proj.bias", C, 1, L},
                                  {"ln_2.weight", C, 1, L},
                                  {"ln_2.bias", C, 1, L},
                                  {"mlp.c_fc.weight", 4 * C, C, L},
                                  {"mlp.c_fc.bias", 4 * C, 1, L},
                                  {"mlp.c_proj.weight", C, 4 * C, L},
                                  {"mlp.c_proj.bias", C, 1, L},
                                  {"ln_f.weight", C, 1, 1},
                                  {"ln_f.bias", C, 1, 1}};

std::string file_bytes(std::int32_t version, const std::map<int, std::int32_t>& changes = {}) {
  std::vector<std::int32_t> header(256);
  const std::int32_t first[] = {20240326, version, T, V, L, NH, C, Vp};
  std::copy(std::begin(first), std::end(first), header.begin());
  for (const auto& [at, value] : changes) header[static_cast<std::size_t>(at)] = value;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  for (std::size_t p = 0; p < kParts.size(); ++p) {
    for (std::int64_t layer = 0; layer < kParts[p].layers; ++layer) {
      for (std::int64_t i = 0; i < kParts[p].rows * kParts[p].columns; ++i) {
        const float value = element(static_cast<std::int64_t>(p), layer, i);
        char stored[4];
        std::memcpy(stored, &value, 4);
        bytes.append(version == 3 ? stored : stored + 2, version == 3 ? 4 : 2);  // bf16: upper half
      }
    }
  }
  return bytes;
}

std::string fault(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return complaint([&] { LlmcModelFile file(path); });
}

}  // namespace

TEST_SUITE("llmc_model_file") {
  TEST_CASE("every tensor of both versions is read, with linear layers transposed") {
    const TemporaryDirectory folder;
    for (const std::int32_t version : {3, 5}) {
      CAPTURE(version);
      const std::string path = folder.file("model.bin");
      REQUIRE(fault(path, file_bytes(version)) == "");
      const LlmcModelFile file(path);
      const llmc::HuggingFaceConfig config = file.config();
      CHECK(config.vocab_size == V);
      CHECK(config.n_positions == T);
      CHECK(config.n_layer == L);
      CHECK(config.n_head == NH);
      CHECK(config.n_embd == C);
      CHECK(config.eos_token_ids.empty());
      for (std::size_t p = 0; p < kParts.size(); ++p) {
        const Part& part = kParts[p];
        for (std::int64_t layer = 0; layer < part.layers; ++layer) {
          const std::string name =
              part.layers > 1 ? "h." + std::to_string(layer) + "." + part.name : part.name;
          CAPTURE(name);
          const bool linear = part.layers > 1 && part.columns > 1;
          const std::int64_t rows = part.name == "wte.weight" ? V : part.rows;
          const Shape shape = linear             ? Shape{part.columns, rows}
                              : part.columns > 1 ? Shape{rows, part.columns}
                                                 : Shape{rows};
          std::vector<float> actual(static_cast<std::size_t>(rows * part.columns));
          file.load(name, shape, actual.data());
          int num_wrong = 0;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < part.columns; ++c) {
              const float expected =
                  element(static_cast<std::int64_t>(p), layer, r * part.columns + c);
              const auto at =
                  static_cast<std::size_t>(linear ? c * rows + r : r * part.columns + c);
              num_wrong += actual[at] != expected;
            }
          }
          CHECK(num_wrong == 0);
        }
      }
    }
  }

  TEST_CASE("a weight that is not finite is an error that names its place in the file") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("model.bin");
    struct Place {
      const char* name;
      Shape shape;
      std::int64_t index;  // of the element from the start of the weights
      std::string text;
    };
    const std::int64_t layers = (Vp + T + 2 * L) * C;  // where c_attn begins
    const Place places[] = {
        {"wte.weight", {V, C}, 0, "[0, 0]"},
        {"wte.weight", {V, C}, V * C - 1, "[10, 3]"},
        {"h.1.attn.c_attn.weight", {C, 3 * C}, layers + 3 * C * C, "[0, 0]"},
        {"h.1.attn.c_attn.weight", {C, 3 * C}, layers + 6 * C * C - 2, "[11, 2]"}};
    for (const std::int32_t version : {3, 5}) {
      const std::size_t width = version == 3 ? 4 : 2;
      for (const auto& [name, shape, index, text] : places) {
        for (const float value : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
          std::string bytes = file_bytes(version);
          char stored[4];
          std::memcpy(stored, &value, 4);
          bytes.replace(1024 + static_cast<std::size_t>(index) * width, width, stored + 4 - width,
                        width);
          REQUIRE(fault(path, bytes) == "");
          std::vector<float> values(1024);
          const std::string expected = path + ": tensor " + name + ": element " + text + " is " +
                                       llmc::number_text("%g", value) + ", not finite";
          CHECK(contains(complaint([&] { LlmcModelFile(path).load(name, shape, values.data()); }),
                         expected));
        }
      }
    }
    // The rows that only pad the vocabulary are not used.
    std::string bytes = file_bytes(3);
    const float nan = std::nanf("");
    std::memcpy(bytes.data() + 1024 + 4 * V * C, &nan, 4);
    REQUIRE(fault(path, bytes) == "");
    std::vector<float> values(1024);
    LlmcModelFile(path).load("wte.weight", {V, C}, values.data());
  }

  TEST_CASE("a file that is invalid or truncated is an error that names it") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("model.bin");
    const std::string good = file_bytes(3);
    CHECK(fault(path, "") == path + " is too short for a model file of llm.c (0 bytes)");
    CHECK(contains(fault(path, good.substr(0, 1023)), "too short"));
    CHECK(contains(fault(path, good.substr(0, good.size() - 4)),
                   path + " has " + std::to_string(good.size() - 4) +
                       " bytes, but its header requires " + std::to_string(good.size())));
    CHECK(contains(fault(path, good + "x"), "its header requires"));
    CHECK(contains(fault(path, file_bytes(3, {{0, 20240520}})),
                   "begins with 20240520, not 20240326"));
    CHECK(contains(fault(path, file_bytes(3, {{1, 1}})),
                   "of version 1\n  hint: supported versions: 3"));
    CHECK(contains(fault(path, file_bytes(3, {{1, 5}})), "its header requires"));
    for (const int size : {2, 3, 4, 5, 6, 7}) {
      CAPTURE(size);
      CHECK(contains(fault(path, file_bytes(3, {{size, 0}})), path + ": "));
      CHECK(contains(fault(path, file_bytes(3, {{size, -5}})), " of -5"));
      CHECK(contains(fault(path, file_bytes(3, {{size, 2147483647}})), path));
    }
    CHECK(
        contains(fault(path, file_bytes(3, {{5, 3}})), "4 channels are not a multiple of 3 heads"));
    CHECK(contains(fault(path, file_bytes(3, {{7, 10}})), "a vocabulary of 11 is padded to 10"));

    REQUIRE(fault(path, good) == "");
    const LlmcModelFile file(path);
    std::vector<float> values(1024);
    const auto load = [&](const std::string& name, const Shape& shape) {
      return complaint([&] { file.load(name, shape, values.data()); });
    };
    for (const char* name : {"h.3.ln_1.bias", "h.-1.ln_1.bias", "ln_1.bias", "h.0.ln_f.bias",
                             "h.99999999999999999999.ln_1.bias", "h..ln_1.bias", "h.", ""}) {
      CHECK(load(name, {C}) == path + " has no tensor " + name);
    }
    CHECK(load("wpe.weight", {C, T}) ==
          path + ": tensor wpe.weight has shape (6, 4), expected (4, 6)");
    CHECK(contains(complaint([&] { LlmcModelFile missing_file(folder.file("none.bin")); }),
                   "cannot open " + folder.file("none.bin")));
  }
}
