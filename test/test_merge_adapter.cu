// Adapters merged into the weights of their base model: against PEFT's merged model, against fp64,
// and against the engine's own adapters next to the base.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/pretrained.h"
#include "llmc/models/trainable_set.h"
#include "llmc/quantize/host_weights.h"
#include "test/adapter_samples.h"
#include "test/adapter_shapes.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

const std::vector<std::string> kTrainedCases = {"lora_c_attn", "lora_all", "lora_rslora", "ia3"};

ModelConfig base_config() {
  return read_pretrained_shape(adapter_fixture("base"));
}

// A batch of tokens of the base model.
oracle::Batch some_batch() {
  const std::int64_t B = 2, T = 16;
  oracle::Ints tokens, targets;
  for (std::int64_t i = 0; i < B * T; ++i) tokens.push_back(i * 7 % 61);
  for (std::int64_t i = 0; i < B * T; ++i) targets.push_back(i * 5 % 61);
  return {B, T, tokens, targets, {}};
}

// The base model with an adapter merged, or without one, in host memory.
HostWeights host_weights(const ParameterTable& table, const fs::path& adapter) {
  HostWeights weights(table);
  Stream stream;
  load_merged_weights(adapter_fixture("base"), adapter, weights, stream);
  return weights;
}

std::string hash_of_base() {
  const ParameterTable table = gpt2_parameters(base_config());
  HostWeights weights(table);
  Stream stream;
  BaseHash hash;
  load_weights(adapter_fixture("base"), weights, stream, &hash);
  return hash.text();
}

// The error of merging an adapter into the fixtures' base model, or "".
std::string merge_fault(const fs::path& adapter) {
  return complaint([&] {
    const ParameterTable table = gpt2_parameters(base_config());
    host_weights(table, adapter);
  });
}

// The error of finding a model or an adapter, without its hint.
template <class Find>
std::string find_fault(const Find& find) {
  const std::string text = complaint([&] { find(); });
  return text.substr(0, text.find("\n  hint:"));
}

// Saves a checkpoint with these files of a fixture.
fs::path save_checkpoint(const fs::path& run, std::int64_t step, const std::string& fixture,
                         const std::vector<std::string>& files) {
  CheckpointWriter writer(run, checkpoint_name(step));
  for (const std::string& file : files) {
    writer.text_file(file, read_file(adapter_fixture(fixture) / file));
  }
  writer.commit(step, {{"seed", 42}});
  return writer.path();
}

}  // namespace

TEST_SUITE("merge_adapter") {
  TEST_CASE("logits of merged adapters are those of PEFT's merged model") {
    for (const std::string& name : kTrainedCases) {
      CAPTURE(name);
      const oracle::Fixture fixture((adapter_fixture(name) / "expected.fixture").string());
      const std::int64_t B = fixture.integer("B"), T = fixture.integer("T");
      const auto rows = [&](const char* key) {
        const oracle::Ints all = fixture.ints(key);
        return oracle::Ints(all.begin(), all.begin() + B * T);
      };
      const oracle::Batch batch{B, T, rows("tokens"), rows("targets"), {}};
      ModelRig<float> rig(base_config(), {.B = B, .T = T});
      load_merged_weights(adapter_fixture("base"), adapter_fixture(name), rig.state(),
                          rig.stream());
      const std::vector<double> logits = rig.logits(batch);
      CHECK(relative_l2(logits, fixture.doubles("merged_logits")) <= 2e-6);
      CHECK(relative_l2(logits, fixture.doubles("logits")) <= 2e-6);
      // The adapter changes the logits, so the bounds above detect that it is missing.
      load_weights(adapter_fixture("base"), rig.state(), rig.stream());
      CHECK(relative_l2(rig.logits(batch), fixture.doubles("logits")) > 0.01);
    }
  }

  TEST_CASE("merged logits are those of the adapter next to the base, also for keys and values") {
    const ModelConfig model = base_config();
    const oracle::Batch batch = some_batch();
    for (AdapterShape shape : adapter_shapes(model)) {
      CAPTURE(shape.layers.size());
      CAPTURE(shape.fixes_query);
      shape.dropout = 0;
      RunShape run{.B = 2, .T = 16};
      run.adapters = shape;
      ModelRig<float> rig(model, with_frozen(std::move(run), model, {}));
      load_weights(adapter_fixture("base"), rig.state(), rig.stream());
      NamedFloats adapter;
      for (const ParameterSpec& spec : rig.state().table().specs()) {
        if (!spec.is_adapter) continue;
        std::vector<float>& values = adapter[spec.name];
        values = random_floats(spec.size(), spec.id + 1, 0.2);
        if (shape.kind == AdapterKind::ia3) {
          for (float& x : values) x += 1;
        }
        rig.state().set_weight(spec, values.data(), rig.stream());
      }
      const std::vector<double> expected = rig.logits(batch);
      AdapterConfig config{.shape = shape, .base = "base", .base_hash = hash_of_base()};
      if (shape.kind == AdapterKind::lora) {
        config.rank = shape.layers.front().rank;
        config.alpha = 2;
      }
      const TemporaryDirectory folder;
      write_adapter(folder.path() / "adapter", config, adapted_model(),
                    [&](const std::string& name, std::span<float> values) {
                      std::ranges::copy(adapter.at(name), values.begin());
                    });
      ModelRig<float> merged(model, {.B = 2, .T = 16});
      load_merged_weights(adapter_fixture("base"), folder.path() / "adapter", merged.state(),
                          merged.stream());
      CHECK(relative_l2(merged.logits(batch), expected) <= 2e-6);
      if (!shape.fixes_query) continue;
      const auto weights = merged.weights().at("h.0.attn.c_attn.weight");
      const ParameterTable table = gpt2_parameters(model);
      HostWeights base = host_weights(table, {});
      const auto& unchanged = base.of("h.0.attn.c_attn.weight");
      std::int64_t num_queries = 0, num_others = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        (i % 96 < 32 ? num_queries : num_others) += weights[i] != unchanged[i];
      }
      CHECK(num_queries == 0);
      CHECK(num_others > 2000);
    }
  }

  TEST_CASE("merged weights are the fp32 numbers nearest to the exact ones") {
    const ModelConfig model = base_config();
    const ParameterTable table = gpt2_parameters(model);
    HostWeights base = host_weights(table, {});
    const AdapterFiles files(adapter_fixture("lora_all"), adapted_model());
    HostWeights merged = host_weights(table, adapter_fixture("lora_all"));
    for (const ParameterSpec& spec : table.specs()) {
      CAPTURE(spec.name);
      const std::string layer = spec.name.substr(0, spec.name.rfind('.'));
      const std::vector<float>&before = base.of(spec), &after = merged.of(spec);
      const bool is_adapted = is_quantized(spec) && spec.block > 0;
      if (!is_adapted) {
        CHECK(same_bits(before, after));
        continue;
      }
      const std::int64_t K = spec.shape[0], N = spec.shape[1], R = 8;
      std::vector<float> a(static_cast<std::size_t>(R * K)), b(static_cast<std::size_t>(R * N));
      files.load(layer + ".lora_A.weight", a);
      files.load(layer + ".lora_B.weight", b);
      double worst = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        for (std::int64_t n = 0; n < N; ++n) {
          long double sum = 0;
          for (std::int64_t r = 0; r < R; ++r) sum += 2.0L * a[r * K + k] * b[r * N + n];
          const double exact = static_cast<double>(sum + before[k * N + n]);
          worst = std::max(worst, std::abs(after[k * N + n] - exact) / std::abs(exact));
        }
      }
      CHECK(worst <= 0x1.00001p-24);
    }
  }

  TEST_CASE("an adapter with a hash is merged only into the model that it was trained with") {
    AdapterCopy adapter("ia3");
    const auto write_base = [&](const std::string& hash) {
      write_file(adapter.path() / kAdapterBaseName,
                 adapter_base_text({.base = "runs/base", .base_hash = hash}));
    };
    write_base(hash_of_base());
    CHECK(merge_fault(adapter.path()) == "");
    std::string other = hash_of_base();
    other.back() = other.back() == '0' ? '1' : '0';
    write_base(other);
    const std::string fault = merge_fault(adapter.path());
    for (const std::string& part :
         {adapter.path().string(), adapter_fixture("base").string(), other, hash_of_base(),
          std::string("hint: give the base model")}) {
      CAPTURE(part);
      CHECK(contains(fault, part));
    }
  }

  TEST_CASE("adapters that do not fit are errors that name the base") {
    CHECK(merge_fault(adapter_fixture("classifier")).empty());  // its base becomes a classifier
    AdapterCopy shape("ia3");
    shape.change_tensors([](auto& headers, auto& contents) {
      headers[0].shape = {headers[0].shape[0] / 2, headers[0].shape[1]};
      contents[0].resize(contents[0].size() / 2);
    });
    CHECK(contains(merge_fault(shape.path()), "adapter for the base " +
                                                  adapter_fixture("base").string() + ": " +
                                                  shape.file(kAdapterWeightsName) + ": tensor "));
    AdapterCopy huge("lora_all");
    huge.set("lora_alpha", "1e38").change_tensors([](auto&, auto& contents) {
      for (auto& bytes : contents) {
        for (float& x : std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4))
          x *= 99;
      }
    });
    const std::string fault = merge_fault(huge.path());
    CAPTURE(fault);
    CHECK(contains(fault, "not finite in fp32"));
  }

  TEST_CASE("models and adapters are found in directories, checkpoints and runs") {
    const TemporaryDirectory folder;
    const fs::path run = folder.path() / "run", models = folder.path() / "models";
    const std::vector<std::string> files = {kAdapterConfigName, kAdapterWeightsName};
    save_checkpoint(run, 1, "ia3", files);
    const fs::path newest = save_checkpoint(run, 2, "ia3", files);
    write_file(newest / kConfigName, read_file(adapter_fixture("base") / kConfigName));
    CHECK(find_adapter("--adapter", run) == newest.string());
    CHECK(find_adapter("--adapter", newest) == newest.string());
    CHECK(merge_fault(find_adapter("--adapter", run)) == "");
    for (const fs::path& path : {run, newest}) {
      CHECK(find_fault([&] { find_pretrained("--model", path); }) ==
            "--model " + newest.string() + " holds an adapter, not a model");
    }
    write_file(newest / kAdapterWeightsName, "damaged");
    CHECK(find_adapter("--adapter", run) == (run / "step_000001").string());
    const fs::path model = save_checkpoint(models, 1, "base", {kConfigName, kWeightsName});
    for (const fs::path& path : {models, model}) {
      CHECK(find_fault([&] { find_adapter("--adapter", path); }) ==
            "--adapter " + model.string() +
                " holds a model, not an adapter: it has no adapter_config.json");
    }
    CHECK(find_fault([&] { find_adapter("--adapter", folder.path()); }) ==
          "--adapter " + folder.path().string() +
              " contains no adapter_config.json and no valid checkpoint");
    // A directory with both is a model.
    write_file(model / kAdapterConfigName, read_file(adapter_fixture("ia3") / kAdapterConfigName));
    CHECK(find_pretrained("--model", model) == model.string());
  }

  TEST_CASE("the base model is the directory that the adapter names") {
    AdapterCopy adapter("ia3");
    const auto set_bases = [&](const std::string& config, const std::string& own) {
      adapter.set("base_model_name_or_path", json_quoted(config));
      write_file(adapter.path() / kAdapterBaseName,
                 adapter_base_text({.base = own, .base_hash = hash_of_base()}));
    };
    const std::string base = adapter_fixture("base").string();
    const auto fault = [&] {
      return find_fault([&] { find_adapter_base("--model", adapter.path().string()); });
    };
    set_bases(base, "elsewhere");
    CHECK(find_adapter_base("--model", adapter.path().string()) == base);
    set_bases("some/name-of-a-hub", base);
    CHECK(find_adapter_base("--model", adapter.path().string()) == base);
    set_bases("some/name-of-a-hub", "elsewhere");
    CHECK(fault() == "--model is required: " + adapter.path().string() +
                         " names the base model some/name-of-a-hub, which is no directory");
    set_bases("", "");
    CHECK(fault() == "--model is required: " + adapter.path().string() + " names no base model");
  }
}
