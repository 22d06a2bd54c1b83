// Adapters in files: those of PEFT are read, and ours are equal to them.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "test/adapter_samples.h"

TEST_SUITE_BEGIN("adapter_files");

using namespace llmc_test;
using llmc::AdapterConfig;
using llmc::AdapterFiles;
using llmc::AdapterKind;
using llmc::AdapterTensor;
using llmc::LayerAdapter;

namespace {

// The value that adapter_fixtures.py gives to an element of the file, before it becomes fp32.
double fixture_value(const AdapterTensor& tensor, std::size_t index, std::size_t element) {
  const bool is_ia3 = tensor.name.ends_with("ia3_l");
  const bool is_b = tensor.name.ends_with("lora_B.weight");
  return llmc::oracle::hashed_parameter(97, 256 + index, element, is_b ? 0.0625 : 0.25,
                                        is_ia3 ? 1 : 0);
}

}  // namespace

TEST_CASE("PEFT's adapters are read: layers, ranks, scales, and every element") {
  for (const std::string& name : kAdapterCases) {
    CAPTURE(name);
    const AdapterFiles files(adapter_fixture(name), adapted_model());
    CHECK(files.config() == expected_config(name));
    const auto& tensors = files.tensors();
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      CAPTURE(tensors[index].name);
      const AdapterTensor& tensor = tensors[index];
      const std::vector<float> values = load(files, tensor);
      const std::size_t columns = static_cast<std::size_t>(tensor.shape.back());
      const std::size_t rows = values.size() / columns;
      std::size_t num_wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        // PyTorch's lora_B is (outputs, R).
        const bool is_b = tensor.name.ends_with("lora_B.weight");
        const std::size_t element = is_b ? i % columns * rows + i / columns : i;
        num_wrong += values[i] != static_cast<float>(fixture_value(tensor, index, element));
      }
      CHECK(num_wrong == 0);
    }
  }
}

TEST_CASE("layers, ranks and scales are those that PEFT derives from the same settings") {
  const std::string file = adapter_fixture("choices.json").string();
  const llmc::Json choices =
      llmc::parse_json(llmc::read_file(file), file, llmc::KeyOrder::as_written);
  REQUIRE(choices.size() > 10);
  for (const llmc::Json& choice : choices) {
    const std::string text = choice["settings"].dump();
    CAPTURE(text);
    std::vector<LayerAdapter> expected, actual;
    for (const llmc::Json& layer : choice["layers"]) {
      expected.push_back({layer[0].text(), llmc::json_size(layer[1], "rank"), layer[2].number()});
    }
    const llmc::PeftSettings settings(text, "config");
    for (int block = 0; block < 2; ++block) {
      for (const std::string name : llmc::kLinearLayers) {
        if (!settings.adapts(block, name)) continue;
        actual.push_back(settings.lora("h." + std::to_string(block) + "." + name));
      }
    }
    CHECK(actual == expected);
  }
}

TEST_CASE("recorded gradients and trained adapters have the shapes of the engine") {
  for (const char* name : {"lora_c_attn", "lora_all", "lora_rslora", "ia3"}) {
    CAPTURE(name);
    const llmc::oracle::Fixture fixture((adapter_fixture(name) / "expected.fixture").string());
    const AdapterFiles files(adapter_fixture(name), adapted_model());
    for (const AdapterTensor& tensor : files.tensors()) {
      CHECK(fixture.shape("gradient." + tensor.name) == tensor.shape);
      CHECK(fixture.shape("final." + tensor.name) == tensor.shape);
      CHECK(fixture.has("decay.final." + tensor.name) == (name != std::string("ia3")));
    }
  }
}

TEST_CASE("an adapter is written as PEFT writes it, and read back unchanged") {
  for (const std::string& name : kAdapterCases) {
    CAPTURE(name);
    const AdapterFiles peft(adapter_fixture(name), adapted_model());
    const TemporaryDirectory directory;
    const fs::path path = directory.path() / "new" / "adapter";
    AdapterConfig config = peft.config();
    config.base_hash = "0123abcd";
    llmc::write_adapter(path, config, adapted_model(), values_from(peft));
    const AdapterFiles ours(path, adapted_model());
    CHECK(ours.config() == config);
    CHECK(llmc::is_adapter_directory(path));
    for (const AdapterTensor& tensor : ours.tensors()) {
      CHECK(same_bits(load(ours, tensor), load(peft, tensor)));
    }
    const llmc::SafetensorsFile expected(adapter_fixture(name) / llmc::kAdapterWeightsName);
    const llmc::SafetensorsFile actual(path / llmc::kAdapterWeightsName);
    CHECK(actual.metadata() == expected.metadata());
    CHECK(actual.names().size() == expected.names().size());
    for (const llmc::TensorEntry& tensor : expected.tensors()) {
      CAPTURE(tensor.name);
      REQUIRE(actual.find(tensor.name) != nullptr);
      CHECK(static_cast<const llmc::TensorHeader&>(*actual.find(tensor.name)) == tensor);
      const llmc::MappedFile bytes = actual.map(*actual.find(tensor.name));
      CHECK(std::ranges::equal(bytes.bytes(), expected.map(tensor).bytes()));
    }
    CHECK(std::distance(fs::directory_iterator(path), {}) == 4);
    CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
    CHECK(contains(
        complaint([&] { llmc::write_adapter(path, config, adapted_model(), values_from(peft)); }),
        path.string() + " exists and is not an empty directory"));
  }
}

TEST_CASE("the texts of an adapter: fields that PEFT needs, the base model, the card") {
  AdapterConfig config =
      config_of(AdapterKind::lora, {"h.0.attn.c_proj", "h.0.mlp.c_proj"}, 4, 16, 4);
  config.shape.dropout = 0.25;
  config.shape.layers[1] = {"h.0.mlp.c_proj", 8, 0.3};
  CHECK(llmc::adapter_config_text(config, 1) == R"({
  "base_model_name_or_path": "base",
  "fan_in_fan_out": true,
  "inference_mode": true,
  "modules_to_save": null,
  "peft_type": "LORA",
  "peft_version": "0.21.0",
  "target_modules": [
    "attn.c_proj",
    "mlp.c_proj"
  ],
  "task_type": "CAUSAL_LM",
  "r": 4,
  "lora_alpha": 16,
  "lora_dropout": 0.25,
  "use_rslora": false,
  "bias": "none",
  "rank_pattern": {
    "transformer.h.0.mlp.c_proj": 8
  },
  "alpha_pattern": {
    "transformer.h.0.mlp.c_proj": 2.4
  }
}
)");
  // If a second block has no adapter, every layer is named.
  CHECK(contains(llmc::adapter_config_text(config, 2),
                 "[\n    \"transformer.h.0.attn.c_proj\",\n    \"transformer.h.0.mlp.c_proj\"\n"));
  config = expected_config("ia3");
  config.labels = 2;
  config.base.clear();
  CHECK(llmc::adapter_config_text(config, 2) == R"({
  "base_model_name_or_path": null,
  "fan_in_fan_out": true,
  "inference_mode": true,
  "modules_to_save": [
    "classifier",
    "score"
  ],
  "peft_type": "IA3",
  "peft_version": "0.21.0",
  "target_modules": [
    "c_attn",
    "mlp.c_proj"
  ],
  "task_type": "SEQ_CLS",
  "feedforward_modules": [
    "mlp.c_proj"
  ]
}
)");
  config.base = "a \"base\"";
  config.base_hash = "12";
  CHECK(llmc::adapter_base_text(config) ==
        "{\n  \"path\": \"a \\\"base\\\"\",\n  \"hash\": \"12\"\n}\n");
  const std::string card = llmc::adapter_card_text(config, "mine");
  CHECK(card.starts_with("---\nbase_model: \"a \\\"base\\\"\"\nlibrary_name: peft\n"));
  CHECK(contains(card, "| adapted layers | attn.c_attn of 2 blocks, mlp.c_proj of 2 blocks |"));
  CHECK(contains(card,
                 "AutoPeftModelForSequenceClassification.from_pretrained(\"mine\", "
                 "num_labels=2)"));
}

TEST_CASE("the base model's hash is optional, and its path is used if PEFT's field has none") {
  AdapterCopy copy("ia3");
  copy.set("base_model_name_or_path", "null");
  CHECK(AdapterFiles(copy.path(), adapted_model()).config().base == "");
  const std::string file = copy.file(llmc::kAdapterBaseName);
  llmc::write_file(file, R"({"path": "there", "hash": "ff"})");
  CHECK(AdapterFiles(copy.path(), adapted_model()).config().base == "there");
  CHECK(AdapterFiles(copy.path(), adapted_model()).config().base_hash == "ff");
  llmc::write_file(file, R"({"path": "there"})");
  CHECK(copy.fault() == "DIR/llmc_base.json has no hash");
  llmc::write_file(file, R"({"path": 3, "hash": "ff"})");
  CHECK(copy.fault().starts_with("DIR/llmc_base.json: path"));
}

TEST_CASE("an adapter of keys and values has ones for queries in files") {
  AdapterConfig config = expected_config("ia3");
  config.shape.fixes_query = true;
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "adapter";
  llmc::write_adapter(path, config, adapted_model(), [](const std::string& name, auto values) {
    CHECK(values.size() == (name.ends_with("c_attn.ia3_l") ? 64u : 128u));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 + static_cast<float>(i);
  });
  std::vector<float> expected(96, 1.0f);
  for (std::size_t i = 0; i < 64; ++i) expected[32 + i] = 2 + static_cast<float>(i);
  const AdapterFiles whole(path, adapted_model());
  CHECK_FALSE(whole.config().shape.fixes_query);
  CHECK(load(whole, whole.tensors()[0]) == expected);
  const AdapterFiles fixed(path, adapted_model(), true);
  CHECK(fixed.config().shape == config.shape);
  CHECK(load(fixed, fixed.tensors()[0]) ==
        std::vector<float>(expected.begin() + 32, expected.end()));

  AdapterCopy copy("ia3");
  CHECK(copy.fault() == "");
  const std::string fault = copy.fault(true);
  CHECK(
      fault.starts_with("DIR/adapter_model.safetensors: tensor "
                        "base_model.model.transformer.h.0.attn.c_attn.ia3_l: element [0, 0] is "));
  CHECK(fault.ends_with(", not 1: the adapter scales queries too"));
  CHECK(AdapterCopy("lora_all").fault(true) == "");
}

TEST_CASE("bf16, fp16 and fp64 are read; other dtypes and numbers that are not finite are errors") {
  AdapterCopy copy("lora_c_attn");
  const std::string first =
      "DIR/adapter_model.safetensors: tensor "
      "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight";
  const AdapterFiles peft(adapter_fixture("lora_c_attn"), adapted_model());
  const auto store_as = [&](llmc::TensorDtype dtype, auto convert) {
    copy.change_tensors([&](auto& headers, auto& contents) {
      headers[0].dtype = dtype;
      std::vector<float> values = load(peft, peft.tensors()[0]);
      contents[0].clear();
      for (const float value : values) {
        const auto stored = convert(value);
        const auto* bytes = reinterpret_cast<const std::byte*>(&stored);
        contents[0].insert(contents[0].end(), bytes, bytes + sizeof stored);
      }
    });
    return copy.fault();
  };
  const auto first_value = [&] {
    const AdapterFiles files(copy.path(), adapted_model());
    return load(files, files.tensors()[0])[0];
  };
  const float value = load(peft, peft.tensors()[0])[0];
  CHECK(store_as(llmc::TensorDtype::f64, [](float x) { return double{x}; }) == "");
  CHECK(first_value() == value);
  CHECK(store_as(llmc::TensorDtype::bf16,
                 [](float x) { return llmc::from_float<llmc::bf16>(x); }) == "");
  CHECK(first_value() == llmc::to_float(llmc::from_float<llmc::bf16>(value)));
  CHECK(store_as(llmc::TensorDtype::f16, [](float x) { return llmc::from_float<llmc::fp16>(x); }) ==
        "");
  CHECK(first_value() == llmc::to_float(llmc::from_float<llmc::fp16>(value)));
  CHECK(store_as(llmc::TensorDtype::i32, [](float) { return std::int32_t{1}; }) ==
        first + " has dtype I32");
  CHECK(store_as(llmc::TensorDtype::f32, [](float) { return std::nanf(""); }) ==
        first + ": element [0, 0] is nan, not finite");
  const TemporaryDirectory directory;
  CHECK(contains(complaint([&] {
                   llmc::write_adapter(directory.path() / "a", peft.config(), adapted_model(),
                                       [](const std::string& name, std::span<float> values) {
                                         const bool is_b = name == "h.1.attn.c_attn.lora_B.weight";
                                         if (is_b)
                                           values[97] = std::numeric_limits<float>::infinity();
                                       });
                 }),
                 "adapter parameter h.1.attn.c_attn.lora_B.weight: element [1, 1] is inf"));
  CHECK(fs::is_empty(directory.path()));
}

TEST_CASE("a scale is written as an alpha that gives the same scale again") {
  AdapterConfig config = config_of(AdapterKind::lora, {"h.0.attn.c_attn"}, 7, 16, 1);
  std::size_t num_wrong = 0;
  for (const bool rslora : {false, true}) {
    config.rslora = rslora;
    for (int alpha = 1; alpha <= 300; ++alpha) {
      for (std::int64_t rank = 1; rank <= 16; ++rank) {
        LayerAdapter& layer = config.shape.layers[0];
        layer.rank = rank;
        layer.scale = llmc::lora_scale(alpha / 10.0, rank, rslora);
        const std::string text = llmc::adapter_config_text(config, 1);
        num_wrong += llmc::PeftSettings(text, "config").lora("h.0.attn.c_attn") != layer;
        // Whole numbers stay whole; 16 is the default.
        const std::string whole = "\"transformer.h.0.attn.c_attn\": " + std::to_string(alpha / 10);
        if (alpha % 10 == 0 && alpha != 160) num_wrong += !contains(text, whole + "\n");
      }
    }
  }
  CHECK(num_wrong == 0);
}

TEST_SUITE_END();
