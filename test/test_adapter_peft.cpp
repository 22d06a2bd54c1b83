// PEFT itself reads the adapters that we write.
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "test/adapter_samples.h"
#include "test/python.h"

TEST_SUITE_BEGIN("adapter_peft");

using namespace llmc_test;
using llmc::AdapterConfig;
using llmc::AdapterFiles;
using llmc::AdapterKind;
using llmc::LayerAdapter;

namespace {

constexpr const char* kImports = R"(
import json, os, sys, warnings
os.environ['HF_HUB_OFFLINE'] = '1'
import peft, torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.simplefilter('error', UserWarning)
)";

// Loads each adapter of the folder `adapters` and prints its layers. Parameters must be those of
// the file, and the logits of a case must be those with the fixture that PEFT wrote.
std::string loading_script() {
  return std::string(kImports) + R"(
import pathlib, safetensors.torch
tokens = torch.arange(32).reshape(2, 16)
fixtures = pathlib.Path(')" +
         adapter_fixture("").string() +
         R"(')
for path in sorted(pathlib.Path('adapters').iterdir()):
    config = json.load(open(path / 'adapter_config.json'))
    kind = peft.AutoPeftModelForCausalLM
    options = {}
    if config['task_type'] == 'SEQ_CLS':
        kind = peft.AutoPeftModelForSequenceClassification
        stored = safetensors.torch.load_file(path / 'adapter_model.safetensors')
        options = dict(num_labels=len(stored['base_model.model.score.weight']), pad_token_id=0)
    model = kind.from_pretrained(str(path), **options).eval()
    stored = safetensors.torch.load_file(path / 'adapter_model.safetensors')
    loaded = peft.get_peft_model_state_dict(model)
    assert loaded.keys() == stored.keys(), (path, loaded.keys() ^ stored.keys())
    assert all(torch.equal(loaded[name], stored[name]) for name in stored), path
    layers = {name: m for name, m in model.base_model.model.named_modules() if hasattr(m, 'lora_A') or hasattr(m, 'ia3_l')}
    for name, layer in layers.items():
        if hasattr(layer, 'ia3_l'):
            print(path.name, name, 'inputs' if layer.is_feedforward else 'outputs')
        else:
            print(path.name, name, layer.r['default'], '%.17g' % layer.scaling['default'])
    if (fixtures / path.name).exists():
        original = kind.from_pretrained(str(path), **options).eval()
        original.load_adapter(str(fixtures / path.name), 'original')
        original.set_adapter('original')
        assert torch.equal(model(tokens).logits, original(tokens).logits), path
)";
}

// Writes the adapters by PEFT again, and two that differ in more.
void write_adapters(const fs::path& folder) {
  const auto write = [&](const std::string& name, const AdapterConfig& config,
                         const llmc::AdapterValues& values) {
    llmc::write_adapter(folder / name, config, adapted_model(), values);
  };
  for (const std::string& name : kAdapterCases) {
    const AdapterFiles peft(adapter_fixture(name), adapted_model());
    AdapterConfig config = peft.config();
    config.base = adapter_fixture("base").string();
    config.base_hash = "ff";
    write(name, config, values_from(peft));
  }
  // Scales and ranks that differ in every layer, in the second block only, and a classifier.
  AdapterConfig mixed = config_of(AdapterKind::lora, {}, 2, 16, 1);
  mixed.rslora = true;
  mixed.labels = 2;
  mixed.base = adapter_fixture("base").string();
  for (const std::int64_t rank : {1, 2, 3, 4}) {
    const char* name = llmc::kLinearLayers[static_cast<std::size_t>(rank - 1)];
    mixed.shape.layers.push_back({std::string("h.1.") + name, rank,
                                  llmc::lora_scale(0.7 * static_cast<double>(rank), rank, true)});
  }
  const auto ramp = [](const std::string&, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) * 0.01f;
  };
  write("mixed", mixed, ramp);
  AdapterConfig query = expected_config("ia3");
  query.shape.fixes_query = true;
  query.shape.layers.pop_back();
  query.base = adapter_fixture("base").string();
  write("query", query, ramp);
}

// Layers, ranks and scales as we read them, in the format of the script.
std::string our_layers(const fs::path& folder) {
  std::string expected;
  for (const auto& entry :
       std::set<fs::path>(fs::directory_iterator(folder), fs::directory_iterator())) {
    const AdapterFiles files(entry, adapted_model());
    for (const LayerAdapter& layer : files.config().shape.layers) {
      char text[64];
      std::snprintf(text, sizeof text, "%lld %.17g", static_cast<long long>(layer.rank),
                    layer.scale);
      const bool is_ia3 = files.config().shape.kind == AdapterKind::ia3;
      const char* place = layer.layer.ends_with("c_attn") ? "outputs" : "inputs";
      expected += entry.filename().string() + " transformer." + layer.layer + " " +
                  (is_ia3 ? place : text) + "\n";
    }
  }
  return expected;
}

}  // namespace

TEST_CASE("PEFT loads what we write: the same parameters, scales and logits") {
  if (!python_has("torch, transformers, peft")) {
    return skip("no Python with torch, transformers and peft (set PYTHON)");
  }
  const TemporaryDirectory directory;
  write_adapters(directory.path() / "adapters");
  CHECK(run_python(loading_script(), directory.path()) ==
        our_layers(directory.path() / "adapters"));
}

TEST_SUITE_END();
