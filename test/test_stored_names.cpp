// Names under which other programs store the weights of a GPT-2.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
namespace fs = std::filesystem;

constexpr const char* kWte = "wte.weight";

// Writes model.safetensors with vectors of two floats: VALUE and VALUE + 1 for the tensor with this
// value.
struct Stored {
  std::string name;
  float value = 1;
};
void write_weights(const fs::path& directory, const std::vector<Stored>& tensors) {
  std::vector<TensorHeader> headers;
  for (const Stored& tensor : tensors) headers.push_back({tensor.name, TensorDtype::f32, {2}});
  SafetensorsWriter writer(directory / kWeightsName, headers);
  for (const Stored& tensor : tensors) {
    const float values[] = {tensor.value, tensor.value + 1};
    writer.write(tensor.name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

std::vector<float> load(const HuggingFaceWeights& weights, const std::string& name) {
  std::vector<float> values(2);
  weights.load(name, {2}, values.data());
  return values;
}

TEST_SUITE("stored_names") {
  TEST_CASE("the prefixes of torch.compile and DistributedDataParallel are removed") {
    const TemporaryDirectory folder;
    for (const char* name :
         {"transformer.h.0.ln_1.bias", "h.0.ln_1.bias", "_orig_mod.transformer.h.0.ln_1.bias",
          "_orig_mod.h.0.ln_1.bias", "module.transformer.h.0.ln_1.bias",
          "module._orig_mod.transformer.h.0.ln_1.bias", "transformer.h.0._orig_mod.ln_1.bias",
          "_orig_mod.module.transformer.h.0.ln_1.bias"}) {
      CAPTURE(name);
      write_weights(folder.path(), {{name, 5}});
      const HuggingFaceWeights weights(folder.path());
      CHECK(weights.names() == std::vector<std::string>{"h.0.ln_1.bias"});
      CHECK(load(weights, "h.0.ln_1.bias") == std::vector<float>{5, 6});
    }
  }

  TEST_CASE("a tensor under two names is an error that has both") {
    const TemporaryDirectory folder;
    write_weights(folder.path(), {{"_orig_mod.wte.weight"}, {"transformer.wte.weight"}});
    CHECK(contains(complaint([&] { HuggingFaceWeights{folder.path()}; }),
                   "tensor wte.weight is stored twice, as _orig_mod.wte.weight and as "
                   "transformer.wte.weight"));
  }

  TEST_CASE("a tied matrix may be stored only as that of the head") {
    const TemporaryDirectory folder;
    for (const char* name : {"lm_head.weight", "_orig_mod.lm_head.weight"}) {
      write_weights(folder.path(), {{name, 3}});
      const HuggingFaceWeights weights(folder.path());
      CHECK(weights.names() == std::vector<std::string>{kWte});
      CHECK(load(weights, kWte) == std::vector<float>{3, 4});
      weights.require_exactly({kWte});
    }
    // A head of its own needs both.
    const HuggingFaceWeights untied(folder.path(), llmc::StoredHead::own);
    CHECK(contains(complaint([&] {
                     untied.require_exactly({kWte, "lm_head.weight"});
                   }),
                   "missing wte.weight"));
  }

  TEST_CASE("a head that is not tied is kept, and equals the embeddings only if it is tied") {
    const TemporaryDirectory folder;
    write_weights(folder.path(), {{"transformer.wte.weight", 1}, {"lm_head.weight", 2}});
    const HuggingFaceWeights untied(folder.path(), llmc::StoredHead::own);
    untied.require_exactly({kWte, "lm_head.weight"});
    CHECK(load(untied, "lm_head.weight") == std::vector<float>{2, 3});
    CHECK(contains(complaint([&] { HuggingFaceWeights{folder.path()}; }),
                   "\"tie_word_embeddings\": false"));
  }

  TEST_CASE("tensors of other heads are ignored, but not those of a layer too many") {
    const TemporaryDirectory folder;
    write_weights(folder.path(), {{"transformer.wte.weight"},
                                  {"multiple_choice_head.summary.weight"},
                                  {"v_head.summary.bias"},
                                  {"_orig_mod.score.weight"}});
    const HuggingFaceWeights weights(folder.path());
    weights.require_exactly({kWte});
    CHECK(contains(complaint([&] {
                     weights.require_exactly({kWte, "wpe.weight"});
                   }),
                   "missing wpe.weight"));
    write_weights(folder.path(), {{"transformer.wte.weight"}, {"transformer.h.7.ln_1.bias"}});
    CHECK(contains(complaint([&] { HuggingFaceWeights(folder.path()).require_exactly({kWte}); }),
                   "unexpected h.7.ln_1.bias"));
  }

  TEST_CASE("weights only in PyTorch's format are answered with the command that converts them") {
    const TemporaryDirectory folder;
    CHECK(contains(complaint([&] { require_safetensors(folder.path()); }),
                   "has no model.safetensors"));
    for (const char* name : {"pytorch_model.bin.index.json", "pytorch_model.bin"}) {
      write_file(folder.path() / name, "x");
      const std::string error = complaint([&] { require_safetensors(folder.path()); });
      CHECK(contains(error, std::string("PyTorch's format, ") + name));
      CHECK(contains(error, "python3 -c 'import sys; from transformers"));
      CHECK(error.ends_with(" " + folder.path().string()));
    }
    write_weights(folder.path(), {{kWte}});
    require_safetensors(folder.path());
  }
}

}  // namespace
