// Adapters for tests: those that PEFT wrote, and changed copies of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "test/oracle/fixture.h"
#include "test/support.h"

namespace llmc_test {

namespace fs = std::filesystem;

// The folders that test/oracle/adapter_fixtures.py writes.
inline fs::path adapter_fixture(const std::string& name) {
  return fs::path(llmc::oracle::fixtures_dir()) / "adapters" / name;
}

inline llmc::HuggingFaceConfig adapted_model() {
  return llmc::read_huggingface_config(adapter_fixture("base"));
}

inline std::vector<float> load(const llmc::AdapterFiles& files, const llmc::AdapterTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(*llmc::checked_count(tensor.shape)));
  files.load(tensor.name, values);
  return values;
}

// Names of the adapters by PEFT.
inline const std::vector<std::string> kAdapterCases = {"lora_c_attn", "lora_all",   "lora_rslora",
                                                       "ia3",         "classifier", "patterns",
                                                       "expression",  "all_linear"};

// An adapter of these layers, each with this rank and scale.
inline llmc::AdapterConfig config_of(llmc::AdapterKind kind, const std::vector<std::string>& layers,
                                     std::int64_t rank, double alpha, double scale) {
  llmc::AdapterConfig config{.rank = rank, .alpha = alpha, .base = "base"};
  config.shape.kind = kind;
  for (const std::string& layer : layers) config.shape.layers.push_back({layer, rank, scale});
  return config;
}

inline std::vector<std::string> all_layers() {
  std::vector<std::string> layers;
  for (const std::string block : {"h.0.", "h.1."}) {
    for (const char* name : llmc::kLinearLayers) layers.push_back(block + name);
  }
  return layers;
}

inline llmc::AdapterConfig expected_config(const std::string& name) {
  const auto lora = llmc::AdapterKind::lora;
  if (name == "lora_c_attn") {
    return config_of(lora, {"h.0.attn.c_attn", "h.1.attn.c_attn"}, 4, 16, 4);
  }
  if (name == "lora_all") return config_of(lora, all_layers(), 8, 16, 2);
  if (name == "all_linear") return config_of(lora, all_layers(), 1, 8, 8);
  if (name == "ia3") {
    llmc::AdapterConfig config = config_of(
        llmc::AdapterKind::ia3,
        {"h.0.attn.c_attn", "h.0.mlp.c_proj", "h.1.attn.c_attn", "h.1.mlp.c_proj"}, 0, 0, 1);
    return config;
  }
  if (name == "lora_rslora") {
    llmc::AdapterConfig config = config_of(lora, all_layers(), 4, 16, 8);
    config.rslora = true;
    return config;
  }
  if (name == "classifier") {
    llmc::AdapterConfig config =
        config_of(lora, {"h.0.attn.c_proj", "h.0.mlp.c_proj", "h.1.attn.c_proj", "h.1.mlp.c_proj"},
                  2, 3, 1.5);
    config.labels = 3;
    return config;
  }
  if (name == "patterns") {
    llmc::AdapterConfig config = config_of(lora, {"h.1.attn.c_attn", "h.1.mlp.c_proj"}, 2, 5, 3.5);
    config.shape.layers[0] = {"h.1.attn.c_attn", 3, 5.0 / 3};
    config.shape.dropout = 0.1;
    return config;
  }
  return config_of(lora, {"h.0.attn.c_proj", "h.1.mlp.c_proj"}, 1, 8, 8);
}

// The parameters of an adapter of PEFT in memory.
inline llmc::AdapterValues values_from(const llmc::AdapterFiles& files) {
  return [&files](const std::string& name, std::span<float> values) { files.load(name, values); };
}

// A copy of an adapter by PEFT, to change it.
class AdapterCopy {
 public:
  explicit AdapterCopy(const std::string& name) {
    fs::copy(adapter_fixture(name), path());
    const std::string file = (path() / llmc::kAdapterConfigName).string();
    config_ = llmc::parse_json(llmc::read_file(file), file, llmc::KeyOrder::as_written);
  }

  fs::path path() const { return directory_.path() / "adapter"; }
  std::string file(const char* name) const { return (path() / name).string(); }

  // Sets a field of adapter_config.json to a value in JSON; an empty value removes the field.
  AdapterCopy& set(const std::string& key, const std::string& value) {
    if (value.empty()) {
      config_.erase(key);
    } else {
      config_[key] = llmc::parse_json(value, key, llmc::KeyOrder::as_written);
    }
    llmc::write_file(path() / llmc::kAdapterConfigName, config_.dump(2));
    return *this;
  }

  // Replaces adapter_model.safetensors. change(headers, bytes) changes tensors, or adds or removes
  // some.
  template <class Change>
  AdapterCopy& change_tensors(const Change& change) {
    const fs::path file = path() / llmc::kAdapterWeightsName;
    std::vector<llmc::TensorHeader> headers;
    std::vector<std::vector<std::byte>> contents;
    {
      const llmc::SafetensorsFile old(file);
      for (const llmc::TensorEntry& tensor : old.tensors()) {
        const llmc::MappedFile map = old.map(tensor);
        headers.push_back(tensor);
        contents.emplace_back(map.bytes().begin(), map.bytes().end());
      }
    }
    change(headers, contents);
    llmc::SafetensorsWriter writer(file, headers);
    for (std::size_t i = 0; i < headers.size(); ++i) writer.write(headers[i].name, contents[i]);
    writer.finish();
    return *this;
  }

  // The error of reading it, with DIR for the directory and without the hint, or "".
  std::string fault(bool fixes_query = false) const {
    std::string text = complaint([&] {
      const llmc::AdapterFiles files(path(), adapted_model(), fixes_query);
      for (const llmc::AdapterTensor& tensor : files.tensors()) load(files, tensor);
    });
    for (std::size_t at = 0; (at = text.find(path().string())) != std::string::npos;) {
      text.replace(at, path().string().size(), "DIR");
    }
    return text.substr(0, text.find("\n  hint:"));
  }

 private:
  TemporaryDirectory directory_;
  llmc::Json config_;
};

}  // namespace llmc_test
