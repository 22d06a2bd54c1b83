#include "llmc/io/checkpoint/adapter_files.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <set>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/base/shell_word.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/pending_directory.h"

namespace llmc {

namespace {

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kClassifierName = "score.weight";

// The name in files of a parameter of the engine.
std::string stored_name(const std::string& name) {
  return kPrefix + (name == kClassifierName ? name : "transformer." + name);
}

// Inputs and outputs of a linear layer, by its name in a block.
struct LayerSizes {
  std::int64_t inputs = 0, outputs = 0;
};

LayerSizes sizes_of(const std::string& name, const HuggingFaceConfig& model) {
  const std::int64_t C = model.n_embd, inner = model.n_inner.value_or(4 * C);
  if (name == "attn.c_attn") return {C, 3 * C};
  if (name == "attn.c_proj") return {C, C};
  return name == "mlp.c_fc" ? LayerSizes{C, inner} : LayerSizes{inner, C};
}

// Calls use(block, "attn.c_attn", "h.0.attn.c_attn") for all linear layers in the model's order.
template <class Use>
void for_each_layer(const HuggingFaceConfig& model, const Use& use) {
  for (std::int64_t block = 0; block < model.n_layer; ++block) {
    for (const std::string name : kLinearLayers) {
      use(block, name, "h." + std::to_string(block) + "." + name);
    }
  }
}

void add_lora_tensors(std::vector<AdapterTensor>& tensors, const LayerAdapter& layer,
                      const LayerSizes& sizes) {
  const std::string a = layer.layer + ".lora_A.weight", b = layer.layer + ".lora_B.weight";
  const std::int64_t R = layer.rank;
  tensors.push_back({a, {R, sizes.inputs}, {stored_name(a), TensorDtype::f32, {R, sizes.inputs}}});
  tensors.push_back({b,
                     {R, sizes.outputs},
                     {stored_name(b), TensorDtype::f32, {sizes.outputs, R}},
                     /*transposed=*/true});
}

void add_ia3_tensor(std::vector<AdapterTensor>& tensors, const std::string& layer,
                    const LayerSizes& sizes, bool fixes_query) {
  const std::string name = layer + ".ia3_l";
  AdapterTensor tensor{name, {}, {stored_name(name), TensorDtype::f32, {}}};
  if (layer.ends_with(".attn.c_attn")) {
    tensor.num_ones = fixes_query ? sizes.inputs : 0;
    tensor.shape = {sizes.outputs - tensor.num_ones};
    tensor.stored.shape = {sizes.outputs, 1};
  } else {
    require(layer.ends_with(".mlp.c_proj"), "IA3 cannot adapt " + layer,
            "allowed: attn.c_attn and mlp.c_proj");
    tensor.shape = {sizes.inputs};
    tensor.stored.shape = {1, sizes.inputs};
  }
  tensors.push_back(std::move(tensor));
}

std::size_t count_of(const Shape& shape) {
  return static_cast<std::size_t>(*checked_count(shape));
}

// llmc_base.json; empty texts if there is none.
struct OwnBase {
  std::string hash, path;
};

OwnBase read_own_base(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kAdapterBaseName;
  if (!path_exists(path)) return {};
  const Json json = parse_json(read_file(path), path.string());
  const auto text = [&](const char* key) {
    const Json* value = json.is_object() ? json_member(json, key) : nullptr;
    if (value == nullptr) fail(path.string() + " has no " + key);
    return json_text(*value, path.string() + ": " + key);
  };
  return {.hash = text("hash"), .path = text("path")};
}

std::filesystem::path weights_in(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kAdapterWeightsName;
  if (path_exists(path)) return path;
  if (!path_exists(directory / "adapter_model.bin")) {
    fail(path.string() + " is missing", "give a directory that PEFT's save_pretrained wrote");
  }
  const std::string program =
      "import sys, torch; from safetensors.torch import save_file; d = sys.argv[1]; "
      "t = torch.load(d + '/adapter_model.bin', map_location='cpu', weights_only=True); "
      "save_file({n: x.contiguous() for n, x in t.items()}, d + '/adapter_model.safetensors')";
  fail(directory.string() + " has its weights only in PyTorch's format, adapter_model.bin",
       "convert them: python3 -c " + shell_word(program) + " " + shell_word(directory.string()));
}

}  // namespace

// ---- tensors -------------------------------------------------------------------------------

std::vector<AdapterTensor> adapter_tensors(const AdapterConfig& config,
                                           const HuggingFaceConfig& model) {
  const AdapterShape& shape = config.shape;
  std::vector<AdapterTensor> tensors;
  std::size_t next = 0;
  for_each_layer(model, [&](std::int64_t, const std::string& name, const std::string& layer) {
    if (next == shape.layers.size() || shape.layers[next].layer != layer) return;
    const LayerAdapter& adapter = shape.layers[next++];
    const LayerSizes sizes = sizes_of(name, model);
    if (shape.kind == AdapterKind::lora) {
      require(adapter.rank > 0, layer + ": LoRA needs a rank above 0");
      add_lora_tensors(tensors, adapter, sizes);
    } else {
      add_ia3_tensor(tensors, layer, sizes, shape.fixes_query);
    }
  });
  require(next == shape.layers.size(),
          "an adapter of the layer " +
              (next == shape.layers.size() ? std::string() : shape.layers[next].layer) +
              " does not fit the model, or is not in its order");
  if (config.labels > 0) {
    const Shape classifier = {config.labels, model.n_embd};
    tensors.push_back({kClassifierName,
                       classifier,
                       {stored_name(kClassifierName), TensorDtype::f32, classifier}});
  }
  return tensors;
}

// ---- reading -------------------------------------------------------------------------------

bool is_adapter_directory(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / kAdapterConfigName, ignored);
}

AdapterBases read_adapter_bases(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kAdapterConfigName;
  return {.config = PeftSettings(read_file(path), path.string()).base(),
          .own = read_own_base(directory).path};
}

AdapterFiles::AdapterFiles(const std::filesystem::path& directory, const HuggingFaceConfig& model,
                           bool fixes_query)
    : directory_(directory), file_(weights_in(directory)) {
  const std::filesystem::path path = directory / kAdapterConfigName;
  const PeftSettings settings(read_file(path), path.string());
  config_.shape.kind = settings.kind();
  config_.shape.dropout = settings.dropout();
  config_.shape.fixes_query = fixes_query && settings.kind() == AdapterKind::ia3;
  config_.rank = settings.rank();
  config_.alpha = settings.alpha();
  config_.rslora = settings.rslora();
  config_.base = settings.base();
  const OwnBase own = read_own_base(directory);
  config_.base_hash = own.hash;
  if (config_.base.empty()) config_.base = own.path;
  read_layers(settings, model);
  if (settings.classifies()) {
    const std::string name = stored_name(kClassifierName);
    const TensorEntry* classifier = file_.find(name);
    if (classifier == nullptr) {
      fail(file_.path().string() + " has no tensor " + name + ", although the adapter classifies");
    }
    if (classifier->shape.size() != 2 || classifier->shape[0] < 1) {
      fail(label(name) + " has shape " + shape_text(classifier->shape),
           "allowed: (labels, " + std::to_string(model.n_embd) + ")");
    }
    config_.labels = classifier->shape[0];
  }
  tensors_ = adapter_tensors(config_, model);
  check_tensors(model);
}

std::string AdapterFiles::label(const std::string& stored_name) const {
  return safetensors_detail::label(file_.path().string(), stored_name);
}

// Returns whether the file has the tensor. Throws unless it has those of all target layers, and no
// other ones: PEFT would ignore them.
bool AdapterFiles::require_target(const std::string& tensor, bool is_stored, bool is_target) const {
  if (is_stored == is_target) return is_stored;
  const std::string config = (directory_ / kAdapterConfigName).string();
  if (is_stored) {
    fail(label(tensor) + " is in a layer that " + config + " does not adapt",
         "check target_modules, exclude_modules and layers_to_transform there");
  }
  fail(file_.path().string() + " has no tensor " + tensor + ", although target_modules in " +
           config + " selects its layer",
       "check that both files belong to the same adapter");
}

void AdapterFiles::add_lora(const PeftSettings& settings, const std::string& layer,
                            bool is_target) {
  const std::string a = stored_name(layer + ".lora_A.weight");
  const std::string b = stored_name(layer + ".lora_B.weight");
  const TensorEntry* a_entry = file_.find(a);
  if ((a_entry != nullptr) != (file_.find(b) != nullptr)) {
    fail(file_.path().string() + " has " + (a_entry != nullptr ? a : b) + " but no " +
         (a_entry != nullptr ? b : a));
  }
  if (!require_target(a, a_entry != nullptr, is_target)) return;
  const LayerAdapter adapter = settings.lora(layer);
  if (a_entry->shape.size() == 2 && a_entry->shape[0] != adapter.rank) {
    fail(label(a) + " has rank " + std::to_string(a_entry->shape[0]) +
         ", but r or rank_pattern in " + (directory_ / kAdapterConfigName).string() + " is " +
         std::to_string(adapter.rank));
  }
  config_.shape.layers.push_back(adapter);
}

void AdapterFiles::add_ia3(const PeftSettings& settings, const std::string& layer, bool is_target) {
  const std::string config = (directory_ / kAdapterConfigName).string();
  const bool is_output = layer.ends_with(".attn.c_attn");
  if (!is_output && !layer.ends_with(".mlp.c_proj")) {
    if (!is_target) return;
    fail(config + ": target_modules selects " + layer + " for IA3",
         "allowed for IA3: attn.c_attn and mlp.c_proj");
  }
  const std::string name = stored_name(layer + ".ia3_l");
  if (!require_target(name, file_.find(name) != nullptr, is_target)) return;
  if (settings.scales_inputs(layer) == is_output) {
    fail(config + ": feedforward_modules " + (is_output ? "selects " : "does not select ") + layer,
         "allowed: all of mlp.c_proj, and no attn.c_attn");
  }
  config_.shape.layers.push_back({.layer = layer});
}

void AdapterFiles::read_layers(const PeftSettings& settings, const HuggingFaceConfig& model) {
  for_each_layer(model, [&](std::int64_t block, const std::string& name, const std::string& layer) {
    const bool is_target = settings.adapts(block, name);
    if (settings.kind() == AdapterKind::lora) {
      add_lora(settings, layer, is_target);
    } else {
      add_ia3(settings, layer, is_target);
    }
  });
  if (!config_.shape.layers.empty()) return;
  fail((directory_ / kAdapterConfigName).string() + ": target_modules selects no linear layer",
       "allowed: names of attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj");
}

void AdapterFiles::check_tensors(const HuggingFaceConfig& model) const {
  std::set<std::string> known;
  for (const AdapterTensor& tensor : tensors_) {
    known.insert(tensor.stored.name);
    file_.get(tensor.stored.name, tensor.stored.shape);
  }
  const bool is_lora = config_.shape.kind == AdapterKind::lora;
  for (const std::string& name : file_.names()) {
    if (known.contains(name)) continue;
    fail(label(name) + " is not a part of " + (is_lora ? "a LoRA" : "an IA3") +
             " adapter of the base model",
         std::string("allowed: ") + kPrefix + "transformer.h.N.LAYER." +
             (is_lora ? "lora_A.weight and lora_B.weight" : "ia3_l") + ", N from 0 to " +
             std::to_string(model.n_layer - 1) + ", LAYER one of " +
             (is_lora ? "attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj"
                      : "attn.c_attn and mlp.c_proj") +
             "; score.weight of a classifier");
  }
}

void AdapterFiles::load(const std::string& name, std::span<float> dst) const {
  const auto tensor = std::ranges::find(tensors_, name, &AdapterTensor::name);
  require(tensor != tensors_.end(), directory_.string() + " has no adapter parameter " + name);
  require(dst.size() == count_of(tensor->shape), name + ": wrong number of elements");
  std::vector<float> values(count_of(tensor->stored.shape));
  file_.read_as_float(tensor->stored.name, tensor->stored.shape, values.data());
  const auto num_ones = static_cast<std::size_t>(tensor->num_ones);
  check_elements(
      std::span<const float>(values).first(num_ones), tensor->stored.shape,
      [](float x) { return x != 1; }, "not 1: the adapter scales queries too",
      [&] { return label(tensor->stored.name); },
      "an adapter that scales only keys and values has ones for queries");
  if (!tensor->transposed) {
    std::ranges::copy(std::span(values).subspan(num_ones), dst.begin());
    return;
  }
  const auto rows = static_cast<std::size_t>(tensor->shape[0]);
  const auto columns = static_cast<std::size_t>(tensor->shape[1]);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) dst[i * columns + j] = values[j * rows + i];
  }
}

// ---- writing -------------------------------------------------------------------------------

void write_adapter_tensors(SafetensorsWriter& writer, const std::vector<AdapterTensor>& tensors,
                           const AdapterValues& values_of) {
  for (const AdapterTensor& tensor : tensors) {
    std::vector<float> values(count_of(tensor.shape));
    values_of(tensor.name, values);
    check_elements(
        values, tensor.shape, is_not_finite, "not finite",
        [&] { return "adapter parameter " + tensor.name; }, kDivergedHint);
    std::vector<float> stored(static_cast<std::size_t>(tensor.num_ones), 1.0f);
    stored.reserve(count_of(tensor.stored.shape));
    if (tensor.transposed) {
      const auto rows = static_cast<std::size_t>(tensor.shape[0]);
      const auto columns = static_cast<std::size_t>(tensor.shape[1]);
      for (std::size_t j = 0; j < columns; ++j) {
        for (std::size_t i = 0; i < rows; ++i) stored.push_back(values[i * columns + j]);
      }
    } else {
      stored.insert(stored.end(), values.begin(), values.end());
    }
    writer.write(tensor.stored.name, std::as_bytes(std::span(stored)));
  }
}

std::string adapter_base_text(const AdapterConfig& config) {
  return Json{{"path", config.base}, {"hash", config.base_hash}}.dump(2) + "\n";
}

void write_adapter(const std::filesystem::path& directory, const AdapterConfig& config,
                   const HuggingFaceConfig& model, const AdapterValues& values_of) {
  const std::vector<AdapterTensor> tensors = adapter_tensors(config, model);
  std::error_code ignored;
  if (path_exists(directory) && !std::filesystem::is_empty(directory, ignored)) {
    fail(directory.string() + " exists and is not an empty directory",
         "choose another directory for the adapter, or remove this one");
  }
  const std::filesystem::path parent = parent_of(directory);
  make_directory(parent);
  PendingDirectory pending(directory);
  const std::filesystem::path& folder = pending.path();
  std::vector<TensorHeader> headers;
  for (const AdapterTensor& tensor : tensors) headers.push_back(tensor.stored);
  SafetensorsWriter writer(folder / kAdapterWeightsName, headers);
  write_adapter_tensors(writer, tensors, values_of);
  writer.finish();
  write_file(folder / kAdapterConfigName, adapter_config_text(config, model.n_layer));
  if (!config.base_hash.empty()) write_file(folder / kAdapterBaseName, adapter_base_text(config));
  write_file(folder / kModelCardName, adapter_card_text(config, directory.filename().string()));
  // Replaces only an empty directory.
  if (::rename(folder.c_str(), directory.c_str()) != 0) fail_file("name", directory, errno);
  pending.release();
  sync_directory(parent);
}

}  // namespace llmc
