// Hugging Face directories: every form that save_pretrained writes, directories that must be
// rejected, and transformers itself reading ours.
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "test/python.h"
#include "test/support.h"

TEST_SUITE_BEGIN("huggingface");

namespace {

using llmc_test::complaint;
using llmc_test::contains;
namespace fs = std::filesystem;
using llmc::TensorDtype;
using llmc::TensorHeader;

llmc::HuggingFaceConfig tiny_config() {
  llmc::HuggingFaceConfig config;
  config.vocab_size = 13;
  config.n_positions = 8;
  config.n_layer = 2;
  config.n_head = 3;
  config.n_embd = 6;
  config.bos_token_id = 12;
  config.eos_token_ids = {12};
  return config;
}

// The tensors of a GPT-2, without the prefix "transformer.".
std::vector<TensorHeader> gpt2_tensors(const llmc::HuggingFaceConfig& config, TensorDtype dtype) {
  const std::int64_t C = config.n_embd;
  std::vector<TensorHeader> tensors = {{"wte.weight", dtype, {config.vocab_size, C}},
                                       {"wpe.weight", dtype, {config.n_positions, C}}};
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
      tensors.push_back({h + name + ".weight", dtype, {in, out}});
      tensors.push_back({h + name + ".bias", dtype, {out}});
    };
    const auto norm = [&](const std::string& name) {
      tensors.push_back({h + name + ".weight", dtype, {C}});
      tensors.push_back({h + name + ".bias", dtype, {C}});
    };
    norm("ln_1");
    linear("attn.c_attn", C, 3 * C);
    linear("attn.c_proj", C, C);
    norm("ln_2");
    linear("mlp.c_fc", C, 4 * C);
    linear("mlp.c_proj", 4 * C, C);
  }
  tensors.push_back({"ln_f.weight", dtype, {C}});
  tensors.push_back({"ln_f.bias", dtype, {C}});
  return tensors;
}

std::vector<std::string> names_of(const std::vector<TensorHeader>& tensors) {
  std::vector<std::string> names;
  for (const TensorHeader& tensor : tensors) names.push_back(tensor.name);
  return names;
}

// Random fp32 content of tensor i.
std::vector<float> content(const TensorHeader& tensor, std::size_t i) {
  return llmc_test::random_floats(*llmc::checked_count(tensor.shape), i + 1, 0.3);
}

// Writes a safetensors file of these fp32 tensors; seeds[i] selects the content of tensor i.
void write_weights(const fs::path& path, const std::vector<TensorHeader>& tensors,
                   const std::vector<std::size_t>& seeds) {
  llmc::SafetensorsWriter writer(path, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto values = content(tensors[i], seeds[i]);
    writer.write(tensors[i].name, std::as_bytes(std::span(values)));
  }
  writer.finish();
}

}  // namespace

TEST_CASE("config.json is read back, and an unsupported value is an error that names its key") {
  llmc::HuggingFaceConfig config = tiny_config();
  config.layer_norm_epsilon = 3e-6;
  config.eos_token_ids.clear();
  const std::string text = llmc::huggingface_config_text(config, TensorDtype::f32);
  CHECK(llmc::parse_huggingface_config(text, "c") == config);

  const auto with = [&](const std::string& key, const std::string& value) {
    auto json = llmc::parse_json(text, "JSON", llmc::KeyOrder::as_written);
    json[key] = llmc::parse_json(value, "JSON", llmc::KeyOrder::as_written);
    return complaint([&] { llmc::parse_huggingface_config(json.dump(), "dir/config.json"); });
  };
  const auto without = [&](const std::string& key) {
    auto json = llmc::parse_json(text, "JSON", llmc::KeyOrder::as_written);
    json.erase(key);
    return complaint([&] { llmc::parse_huggingface_config(json.dump(), "dir/config.json"); });
  };
  CHECK(with("n_inner", "24") == "");
  for (const char* known : {"\"gelu_pytorch_tanh\"", "\"gelu\"", "\"gelu_new\"", "\"relu\""}) {
    CHECK(with("activation_function", known) == "");
  }
  CHECK(with("attn_pdrop", "0.1") == "");
  CHECK(with("something_new", "[1]") == "");
  CHECK(with("eos_token_id", "[12, 11]") == "");
  CHECK(without("layer_norm_epsilon") == "");
  CHECK(without("tie_word_embeddings") == "");

  CHECK(with("model_type", "\"llama\"").starts_with("dir/config.json: model_type is llama\n"));
  CHECK(without("model_type").starts_with("dir/config.json: model_type is absent\n"));
  CHECK(with("activation_function", "\"silu\"") ==
        "dir/config.json: activation_function is silu\n"
        "  hint: supported: gelu_new, gelu_pytorch_tanh, gelu, relu");
  CHECK(contains(with("scale_attn_weights", "0"), "scale_attn_weights is not true or false"));
  CHECK(contains(with("add_cross_attention", "true"), "add_cross_attention = true"));
  CHECK(contains(with("n_inner", "0"), "n_inner = 0"));
  CHECK(contains(with("n_inner", "1.5"), "n_inner is 1.5, not an integer"));
  CHECK(with("n_head", "4") == "dir/config.json: n_embd = 6 is not a multiple of n_head = 4");
  CHECK(contains(with("n_head", "0"), "n_head = 0"));
  CHECK(contains(with("vocab_size", "99999999999"), "vocab_size = 99999999999"));
  CHECK(contains(with("n_embd", "6.0"), "n_embd is 6.0, not an integer"));
  CHECK(contains(with("n_layer", "\"2\""), "n_layer is \"2\", not an integer"));
  for (const char* epsilon : {"0", "-1e-5", "1e-60", "\"1e-5\""}) {
    CHECK(contains(with("layer_norm_epsilon", epsilon), "layer_norm_epsilon is "));
  }
  CHECK(contains(with("bos_token_id", "-1"), "bos_token_id is -1"));
  for (const char* key : {"vocab_size", "n_positions", "n_layer", "n_head", "n_embd"}) {
    CHECK(without(key) == std::string("dir/config.json has no ") + key);
  }
  CHECK(complaint([] { llmc::parse_huggingface_config("[]", "c"); }) == "c is not a JSON object");
  CHECK(contains(complaint([] { llmc::parse_huggingface_config("{", "c"); }), "not valid JSON"));

  const llmc_test::TemporaryDirectory directory;
  CHECK(contains(complaint([&] { llmc::read_huggingface_config(directory.path()); }),
                 directory.file("config.json") + " is missing"));
}

TEST_CASE("a mutated config is accepted or rejected") {
  const std::string good = llmc::huggingface_config_text(tiny_config(), TensorDtype::f32);
  std::mt19937_64 random(2);
  int num_read = 0;
  const int rounds = llmc_test::tiny_shapes() ? 1000 : 5000;
  for (int round = 0; round < rounds; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 5);
    }
    num_read += complaint([&] { llmc::parse_huggingface_config(text, "c"); }).empty();
  }
  CHECK(num_read > 0);
  CHECK(num_read < rounds);
}

TEST_CASE("a directory is read back bit for bit") {
  const llmc_test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "new" / "model";
  const auto config = tiny_config();
  for (const TensorDtype dtype : {TensorDtype::f32, TensorDtype::bf16}) {
    const auto tensors = gpt2_tensors(config, dtype);
    std::vector<float> values;
    std::vector<llmc::bf16> bf16_values;
    llmc::write_huggingface(path, config, tensors, [&](std::size_t i) {
      values = content(tensors[i], i);
      bf16_values = llmc_test::convert<llmc::bf16>(values);
      return dtype == TensorDtype::f32 ? std::as_bytes(std::span<const float>(values))
                                       : std::as_bytes(std::span<const llmc::bf16>(bf16_values));
    });
    CHECK(llmc::read_huggingface_config(path) == config);
    const llmc::HuggingFaceWeights weights(path);
    weights.require_exactly(names_of(tensors));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      CAPTURE(tensors[i].name);
      CHECK(weights.dtype(tensors[i].name) == dtype);
      std::vector<float> expected = content(tensors[i], i);
      if (dtype == TensorDtype::bf16) {
        expected = llmc_test::to_floats(llmc_test::convert<llmc::bf16>(expected));
      }
      std::vector<float> actual(expected.size());
      weights.load(tensors[i].name, tensors[i].shape, actual.data());
      CHECK(actual == expected);
    }
  }
}

TEST_CASE("prefixes, masks, shards and a tied head are supported") {
  const llmc_test::TemporaryDirectory directory;
  const auto file = [&](const char* name) { return directory.path() / name; };
  const auto f32 = TensorDtype::f32;
  std::vector<float> actual(6);

  // No prefix, the constant tensors of old exports, and the tied head.
  write_weights(file("model.safetensors"),
                {{"wte.weight", f32, {3, 2}},
                 {"h.0.attn.c_attn.bias", f32, {6}},
                 {"h.0.attn.bias", f32, {1, 1, 2, 2}},
                 {"h.11.attn.masked_bias", f32, {}},
                 {"lm_head.weight", f32, {3, 2}}},
                {1, 2, 3, 4, 1});
  {
    const llmc::HuggingFaceWeights weights(directory.path());
    CHECK(weights.names() == std::vector<std::string>{"h.0.attn.c_attn.bias", "wte.weight"});
    weights.load("wte.weight", {3, 2}, actual.data());
    CHECK(actual == content({"", f32, {6}}, 1));
    CHECK(complaint([&] {
            weights.load("wte.weight", {4, 2}, actual.data());
          }) == directory.file("model.safetensors") +
                    ": tensor wte.weight has shape (3, 2), expected (4, 2)");
    CHECK(complaint([&] {
            weights.load("wpe.weight", {4, 2}, actual.data());
          }) == directory.path().string() + " has no tensor wpe.weight");
    CHECK(contains(complaint([&] {
                     weights.require_exactly({"wte.weight", "wpe.weight"});
                   }),
                   ": missing wpe.weight; unexpected h.0.attn.c_attn.bias"));
  }
  // A head that is not tied.
  write_weights(file("model.safetensors"),
                {{"transformer.wte.weight", f32, {3, 2}}, {"lm_head.weight", f32, {3, 2}}}, {1, 2});
  CHECK(contains(complaint([&] { llmc::HuggingFaceWeights{directory.path()}; }),
                 "lm_head.weight differs from transformer.wte.weight"));
  // One tensor under two names.
  write_weights(file("model.safetensors"),
                {{"transformer.wte.weight", f32, {3, 2}}, {"wte.weight", f32, {3, 2}}}, {1, 1});
  CHECK(contains(complaint([&] { llmc::HuggingFaceWeights{directory.path()}; }),
                 "tensor wte.weight is stored twice"));

  // Shards.
  fs::remove(file("model.safetensors"));
  CHECK(contains(complaint([&] { llmc::HuggingFaceWeights{directory.path()}; }),
                 directory.path().string() + " has no model.safetensors"));
  write_weights(file("one.safetensors"), {{"transformer.wte.weight", f32, {3, 2}}}, {1});
  write_weights(file("two.safetensors"),
                {{"transformer.wpe.weight", f32, {2, 2}}, {"transformer.ln_f.bias", f32, {2}}},
                {2, 3});
  const auto with_map = [&](const std::string& map) {
    std::ofstream(file("model.safetensors.index.json"))
        << "{\"metadata\": {\"total_size\": 48}, \"weight_map\": " << map << "}";
    return complaint([&] {
      const llmc::HuggingFaceWeights weights(directory.path());
      weights.require_exactly({"wte.weight", "wpe.weight", "ln_f.bias"});
      weights.load("wpe.weight", {2, 2}, actual.data());
      CHECK(actual[0] == content({"", f32, {2, 2}}, 2)[0]);
    });
  };
  const std::string first = "{\"transformer.wte.weight\": \"one.safetensors\", ";
  const std::string last = "\"transformer.ln_f.bias\": \"two.safetensors\"}";
  CHECK(with_map(first + "\"transformer.wpe.weight\": \"two.safetensors\", " + last) == "");
  CHECK(contains(with_map(first + last), "missing wpe.weight"));
  CHECK(contains(
      with_map(first + "\"transformer.wpe.weight\": \"one.safetensors\", " + last),
      "one.safetensors has no tensor transformer.wpe.weight, although the index lists it"));
  CHECK(contains(with_map(first + "\"transformer.wpe.weight\": \"none.safetensors\", " + last),
                 "cannot open " + directory.file("none.safetensors")));
  CHECK(contains(with_map(first + "\"x\": \"../two.safetensors\", " + last),
                 "invalid file name ../two.safetensors"));
  CHECK(contains(with_map("[]"), "has no weight_map"));
}

TEST_CASE("the directories of transformers and of OpenAI's files contain the same model") {
  const fs::path fixtures = fs::path(llmc_test::root_dir()) / "test/oracle/fixtures";
  std::vector<std::vector<float>> first;
  for (const char* name : {"hf_tiny", "hf_tiny_openai"}) {
    if (!fs::exists(fixtures / name / "config.json")) {
      llmc_test::skip("no " + (fixtures / name).string());
      return;
    }
    const auto config = llmc::read_huggingface_config(fixtures / name);
    const llmc::HuggingFaceWeights weights(fixtures / name);
    const auto tensors = gpt2_tensors(config, TensorDtype::f32);
    weights.require_exactly(names_of(tensors));
    std::vector<std::vector<float>> all;
    for (const TensorHeader& tensor : tensors) {
      all.emplace_back(static_cast<std::size_t>(*llmc::checked_count(tensor.shape)), std::nanf(""));
      weights.load(tensor.name, tensor.shape, all.back().data());
    }
    if (first.empty()) first = all;
    CHECK(all == first);  // so no NaN is left
  }
}

TEST_CASE("transformers reads our files, and we read its files bit for bit, with shards too") {
  if (!llmc_test::python_has("torch, transformers, safetensors")) {
    llmc_test::skip("no Python with torch and transformers (set PYTHON)");
    return;
  }
  const llmc_test::TemporaryDirectory directory;
  const auto config = tiny_config();
  const auto tensors = gpt2_tensors(config, TensorDtype::f32);
  std::vector<float> values;
  llmc::write_huggingface(directory.path() / "ours", config, tensors, [&](std::size_t i) {
    values = content(tensors[i], i);
    return std::as_bytes(std::span<const float>(values));
  });
  // A checkpoint is also a Hugging Face directory.
  {
    llmc::CheckpointWriter writer(directory.path(), "step_000001");
    auto& file = writer.tensor_file(llmc::kWeightsName, llmc::huggingface_tensors(tensors));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      values = content(tensors[i], i);
      file.write(file.tensors()[i].name, std::as_bytes(std::span(values)));
    }
    writer.text_file(llmc::kConfigName, llmc::huggingface_config_text(config, TensorDtype::f32));
    writer.commit(1, {});
  }
  const std::string output = llmc_test::run_python(R"(
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2LMHeadModel
m, info = GPT2LMHeadModel.from_pretrained('ours', output_loading_info=True)
print({k: sorted(v) for k, v in info.items() if v})
print(type(AutoModelForCausalLM.from_pretrained('ours')).__name__, m.dtype)
c = AutoConfig.from_pretrained('ours')
print(c.n_layer, c.n_head, c.n_embd, c.n_positions, c.vocab_size, c.activation_function,
      c.attn_pdrop, c.layer_norm_epsilon, c.bos_token_id, c.eos_token_id)
print(m.lm_head.weight.data_ptr() == m.transformer.wte.weight.data_ptr())
k = GPT2LMHeadModel.from_pretrained('step_000001').state_dict()
print(all(torch.equal(v, k[n]) for n, v in m.state_dict().items()))
m(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
m.save_pretrained('theirs')
m.save_pretrained('shards', max_shard_size='1KB')
m.to(torch.bfloat16).save_pretrained('halves')
)",
                                                   directory.path());
  CHECK(output ==
        "{}\nGPT2LMHeadModel torch.float32\n2 3 6 8 13 gelu_new 0.0 1e-05 12 12\nTrue\nTrue\n");
  for (const std::string name : {"theirs", "shards", "halves"}) {
    CAPTURE(name);
    const fs::path path = directory.path() / name;
    CHECK(fs::exists(path / llmc::kWeightsIndexName) == (name == "shards"));
    CHECK(llmc::read_huggingface_config(path) == config);
    const llmc::HuggingFaceWeights weights(path);
    weights.require_exactly(names_of(tensors));
    int num_wrong = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::vector<float> expected = content(tensors[i], i);
      if (name == "halves")
        expected = llmc_test::to_floats(llmc_test::convert<llmc::bf16>(expected));
      std::vector<float> actual(expected.size());
      weights.load(tensors[i].name, tensors[i].shape, actual.data());
      num_wrong += actual != expected;
    }
    CHECK(num_wrong == 0);
  }
}

TEST_SUITE_END();
