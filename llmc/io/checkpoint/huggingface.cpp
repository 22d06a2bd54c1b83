#include "llmc/io/checkpoint/huggingface.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/base/shell_word.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/token_ids.h"

namespace llmc {

namespace {

// ---- config --------------------------------------------------------------------------------

// Returns the boolean `key`; a missing key counts as `default_value`.
bool flag(const Json& json, const char* key, bool default_value, const std::string& file) {
  const Json* value = json_member(json, key);
  if (value != nullptr && !value->is_boolean()) fail(file + ": " + key + " is not true or false");
  return value == nullptr ? default_value : value->boolean();
}

std::int64_t positive_size(const Json& json, const char* key, const std::string& file) {
  const Json* value = json_member(json, key);
  if (value == nullptr) fail(file + " has no " + key);
  const std::int64_t size = json_size(*value, file + ": " + key);
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
  if (size < 1 || size > kMaxSize) {
    fail(file + ": " + key + " = " + std::to_string(size), "allowed: 1 to 2147483648");
  }
  return size;
}

double probability(const Json& json, const char* key, double default_value,
                   const std::string& file) {
  const Json* value = json_member(json, key);
  if (value == nullptr) return default_value;
  const double number = value->is_number() ? value->number() : -1;
  if (!(number >= 0 && number <= 1)) {
    fail(file + ": " + key + " = " + printable(value->dump()), "allowed: a number from 0 to 1");
  }
  return number;
}

// Returns the first of token_ids(), or nothing.
std::optional<std::int64_t> token_id(const Json& json, const char* key, const std::string& file) {
  const std::vector<std::int64_t> ids = token_ids(json, key, file);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

void check_architecture(const Json& json, const std::string& file) {
  const Json* type = json_member(json, "model_type");
  const std::string model_type =
      type == nullptr ? "absent" : printable(json_text(*type, file + ": model_type"));
  if (model_type != "gpt2") {
    fail(file + ": model_type is " + model_type, "give a model of type gpt2");
  }
  if (flag(json, "add_cross_attention", false, file)) {
    fail(file + ": add_cross_attention = true is not supported");
  }
}

Activation activation_function(const Json& json, const std::string& file) {
  const Json* value = json_member(json, "activation_function");
  if (value == nullptr) return Activation::gelu_new;
  const std::string name = json_text(*value, file + ": activation_function");
  if (const auto activation = activation_from_name(name)) return *activation;
  std::string known;
  for (const char* other : kActivationNames)
    known += (known.empty() ? "" : ", ") + std::string(other);
  fail(file + ": activation_function is " + printable(name), "supported: " + known);
}

// n_inner, or nothing if it is absent or null.
std::optional<std::int64_t> inner_size(const Json& json, const std::string& file) {
  const Json* value = json_member(json, "n_inner");
  if (value == nullptr || value->is_null()) return std::nullopt;
  return positive_size(json, "n_inner", file);
}

// layer_norm_epsilon as it is written; GPT-2's own value if that is the same number in fp32.
double norm_epsilon(const Json& json, double default_value, const std::string& file) {
  const Json* value = json_member(json, "layer_norm_epsilon");
  if (value == nullptr) return default_value;
  const double epsilon = value->is_number() ? value->number() : 0;
  if (!(static_cast<float>(epsilon) > 0)) {
    fail(file + ": layer_norm_epsilon is " + printable(value->dump()),
         "allowed: a number above 0 in fp32");
  }
  const bool is_default = static_cast<float>(epsilon) == static_cast<float>(default_value);
  return is_default ? default_value : epsilon;
}

// Reads the properties in which models of the family differ.
void read_family(HuggingFaceConfig& config, const Json& json, const std::string& file) {
  config.layer_norm_epsilon = norm_epsilon(json, config.layer_norm_epsilon, file);
  config.n_inner = inner_size(json, file);
  config.activation_function = activation_function(json, file);
  config.scale_attn_weights = flag(json, "scale_attn_weights", true, file);
  config.scale_attn_by_inverse_layer_idx =
      flag(json, "scale_attn_by_inverse_layer_idx", false, file);
  config.tie_word_embeddings = flag(json, "tie_word_embeddings", true, file);
}

constexpr const char* kClassifier = "GPT2ForSequenceClassification";

// Reads the names of the classes and the pad token of a classifier. Other models have neither:
// transformers writes an id2label with two default names for any of them.
void read_labels(HuggingFaceConfig& config, const Json& json, const std::string& file) {
  const Json* architectures = json_member(json, "architectures");
  if (architectures == nullptr || !architectures->is_array()) return;
  const bool is_classifier = std::ranges::any_of(
      *architectures, [](const Json& name) { return name == Json(kClassifier); });
  if (!is_classifier) return;
  config.pad_token_id = token_id(json, "pad_token_id", file);
  const Json* problem = json_member(json, "problem_type");
  if (problem != nullptr && !problem->is_null() &&
      json_text(*problem, file + ": problem_type") != "single_label_classification") {
    fail(file + ": problem_type is " + printable(problem->dump()),
         "supported: single_label_classification");
  }
  const Json* names = json_member(json, "id2label");
  if (names == nullptr) {  // transformers leaves its two default names out
    config.label_names = {"LABEL_0", "LABEL_1"};
    return;
  }
  if (!names->is_object() || names->size() < 2) {
    fail(file + ": id2label is not an object with at least two labels",
         "such as {\"0\": \"negative\", \"1\": \"positive\"}");
  }
  for (std::size_t id = 0; id < names->size(); ++id) {
    const Json* name = json_member(*names, std::to_string(id).c_str());
    if (name == nullptr) fail(file + ": id2label has no label " + std::to_string(id));
    config.label_names.push_back(json_text(*name, file + ": id2label"));
  }
}

void add_labels(Json& json, const HuggingFaceConfig& config) {
  Json id2label = Json::object(), label2id = Json::object();
  for (std::size_t id = 0; id < config.label_names.size(); ++id) {
    id2label[std::to_string(id)] = config.label_names[id];
    label2id[config.label_names[id]] = id;
  }
  json["id2label"] = id2label;
  json["label2id"] = label2id;
  json["problem_type"] = "single_label_classification";
  json["pad_token_id"] = config.pad_token_id ? Json(*config.pad_token_id) : Json(nullptr);
}

}  // namespace

HuggingFaceConfig parse_huggingface_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_object()) fail(file + " is not a JSON object");
  check_architecture(json, file);
  HuggingFaceConfig config;
  config.vocab_size = positive_size(json, "vocab_size", file);
  config.n_positions = positive_size(json, "n_positions", file);
  config.n_layer = positive_size(json, "n_layer", file);
  config.n_head = positive_size(json, "n_head", file);
  config.n_embd = positive_size(json, "n_embd", file);
  if (config.n_embd % config.n_head != 0) {
    fail(file + ": n_embd = " + std::to_string(config.n_embd) +
         " is not a multiple of n_head = " + std::to_string(config.n_head));
  }
  read_family(config, json, file);
  config.embd_pdrop = probability(json, "embd_pdrop", 0.1, file);
  config.attn_pdrop = probability(json, "attn_pdrop", 0.1, file);
  config.resid_pdrop = probability(json, "resid_pdrop", 0.1, file);
  config.bos_token_id = token_id(json, "bos_token_id", file);
  config.eos_token_ids = token_ids(json, "eos_token_id", file);
  read_labels(config, json, file);
  return config;
}

std::string differences_from_gpt2(const HuggingFaceConfig& config) {
  const HuggingFaceConfig gpt2;
  std::string text;
  const auto add = [&](bool differs, const std::string& difference) {
    if (differs) text += (text.empty() ? "" : ", ") + difference;
  };
  const Activation f = config.activation_function;
  const std::int64_t inner = config.n_inner.value_or(4 * config.n_embd);
  add(config.layer_norm_epsilon != gpt2.layer_norm_epsilon,
      number_text("layer_norm_epsilon %g", config.layer_norm_epsilon));
  add(inner != 4 * config.n_embd, "n_inner " + std::to_string(inner));
  add(f == Activation::gelu || f == Activation::relu,
      std::string("activation_function ") + activation_name(f));
  add(!config.scale_attn_weights, "scale_attn_weights false");
  add(config.scale_attn_by_inverse_layer_idx, "scale_attn_by_inverse_layer_idx true");
  add(!config.tie_word_embeddings, "tie_word_embeddings false");
  return text;
}

HuggingFaceConfig read_huggingface_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kConfigName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fail(path.string() + " is missing", "give a directory that save_pretrained wrote");
  }
  return parse_huggingface_config(read_file(path), path.string());
}

std::string huggingface_config_text(const HuggingFaceConfig& config, TensorDtype dtype) {
  const auto optional_json = [](const std::optional<std::int64_t>& value) -> Json {
    return value ? Json(*value) : Json(nullptr);
  };
  const bool is_classifier = !config.label_names.empty();
  Json json = {{"architectures", {is_classifier ? kClassifier : "GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"activation_function", activation_name(config.activation_function)},
                     {"vocab_size", config.vocab_size},
                     {"n_positions", config.n_positions},
                     {"n_ctx", config.n_positions},  // name in older readers
                     {"n_embd", config.n_embd},
                     {"n_layer", config.n_layer},
                     {"n_head", config.n_head},
                     {"n_inner", optional_json(config.n_inner)},
                     {"layer_norm_epsilon", config.layer_norm_epsilon},
                     {"initializer_range", 0.02},
                     {"attn_pdrop", config.attn_pdrop},
                     {"embd_pdrop", config.embd_pdrop},
                     {"resid_pdrop", config.resid_pdrop},
                     {"scale_attn_weights", config.scale_attn_weights},
                     {"scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx},
                     {"reorder_and_upcast_attn", false},
                     {"tie_word_embeddings", config.tie_word_embeddings},
                     {"use_cache", true},
                     {"bos_token_id", optional_json(config.bos_token_id)},
                     {"eos_token_id", token_ids_json(config.eos_token_ids)},
                     {"torch_dtype", dtype == TensorDtype::bf16 ? "bfloat16" : "float32"}};
  if (is_classifier) add_labels(json, config);
  return json.dump(2) + "\n";
}

std::string change_config_dtype(std::string_view config, const std::string& dtype) {
  Json json = parse_json(config, kConfigName, KeyOrder::as_written);
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

// ---- weights -------------------------------------------------------------------------------

std::string huggingface_name(const std::string& name) {
  const bool is_head = name.starts_with("lm_head.") || name.starts_with("score.");
  return is_head ? name : "transformer." + name;
}

StoredHead stored_head(const HuggingFaceConfig& config) {
  if (!config.label_names.empty()) return StoredHead::score;
  return config.tie_word_embeddings ? StoredHead::tied : StoredHead::own;
}

std::vector<TensorHeader> huggingface_tensors(std::vector<TensorHeader> tensors) {
  for (TensorHeader& tensor : tensors) tensor.name = huggingface_name(tensor.name);
  return tensors;
}

void require_safetensors(const std::filesystem::path& directory) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(directory / name, ignored);
  };
  if (has(kWeightsName) || has(kWeightsIndexName)) return;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!has(name)) continue;
    // The folder is an argument of the program, so that its name needs no quoting of Python.
    const std::string program =
        "import sys; from transformers import AutoModelForCausalLM as M; "
        "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])";
    fail(directory.string() + " has its weights only in PyTorch's format, " + name,
         "convert them: python3 -c " + shell_word(program) + " " + shell_word(directory.string()));
  }
  fail(directory.string() + " has no " + std::string(kWeightsName),
       "save the model with save_pretrained of transformers");
}

HuggingFaceWeights::HuggingFaceWeights(const std::filesystem::path& directory, StoredHead head)
    : directory_(directory) {
  require_safetensors(directory);
  std::error_code error;
  if (std::filesystem::exists(directory / kWeightsName, error)) {
    files_.emplace_back(directory / kWeightsName);
    for (const std::string& name : files_.back().names()) add(name, 0, head);
  } else {
    open_shards(head);
  }
  report_ignored();
  if (head == StoredHead::tied) tie_head();
}

void HuggingFaceWeights::report_ignored() const {
  if (ignored_.empty()) return;
  Notice::warn("warning: " + directory_.string() +
               ": tensors of other heads are ignored: " + list(ignored_));
}

std::vector<std::string> HuggingFaceWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, location] : locations_) names.push_back(name);
  return names;
}

void HuggingFaceWeights::require_exactly(const std::vector<std::string>& expected) const {
  const std::set<std::string> expected_set(expected.begin(), expected.end());
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const std::string& name : expected_set) {
    if (!locations_.contains(name)) missing.push_back(name);
  }
  for (const auto& [name, location] : locations_) {
    if (!expected_set.contains(name)) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return;
  std::string what = directory_.string() + ":";
  if (!missing.empty()) what += " missing " + list(missing);
  if (!unexpected.empty())
    what += (missing.empty() ? "" : ";") + (" unexpected " + list(unexpected));
  fail(what, "check that config.json and the weights belong to the same model");
}

std::string HuggingFaceWeights::list(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxNames, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() > kMaxNames) {
    text += " and " + std::to_string(names.size() - kMaxNames) + " more";
  }
  return text;
}

bool HuggingFaceWeights::is_mask(const std::string& name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

bool HuggingFaceWeights::is_of_other_head(const std::string& name, StoredHead head) {
  const char* own = head == StoredHead::score ? "score." : "lm_head.";
  return std::ranges::none_of(std::array{"h.", "wte.", "wpe.", "ln_f.", own},
                              [&](const char* beginning) { return name.starts_with(beginning); });
}

std::string HuggingFaceWeights::plain_name(std::string stored_name) {
  constexpr std::string_view kCompiled = "_orig_mod.";
  for (std::size_t at = 0; (at = stored_name.find(kCompiled, at)) != std::string::npos;) {
    stored_name.erase(at, kCompiled.size());
  }
  for (const std::string_view prefix : {"module.", "transformer."}) {
    if (stored_name.starts_with(prefix)) stored_name.erase(0, prefix.size());
  }
  return stored_name;
}

void HuggingFaceWeights::add(const std::string& stored_name, std::size_t file, StoredHead head) {
  const std::string name = plain_name(stored_name);
  if (is_mask(name)) return;
  if (is_of_other_head(name, head)) return ignored_.push_back(stored_name);
  const auto [at, is_new] = locations_.emplace(name, TensorLocation{file, stored_name});
  if (is_new) return;
  fail(files_[file].path().string() + ": tensor " + printable(name) + " is stored twice, as " +
       printable(at->second.stored_name) + " and as " + printable(stored_name));
}

void HuggingFaceWeights::open_shards(StoredHead head) {
  const std::string file = (directory_ / kWeightsIndexName).string();
  const Json index = parse_json(read_file(file), file);
  const Json* map = index.is_object() ? json_member(index, "weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) fail(file + " has no weight_map");
  std::map<std::string, std::size_t> file_indices;
  for (const auto& [name, value] : map->items()) {
    const std::string shard = json_text(value, file + ": the file of " + printable(name));
    if (!is_plain_file_name(shard)) fail(file + ": invalid file name " + printable(shard));
    const auto [at, is_new] = file_indices.emplace(shard, files_.size());
    if (is_new) files_.emplace_back(directory_ / shard);
    if (files_[at->second].find(name) == nullptr) {
      fail(files_[at->second].path().string() + " has no tensor " + printable(name) +
           ", although the index lists it there");
    }
    add(name, at->second, head);
  }
}

const HuggingFaceWeights::TensorLocation& HuggingFaceWeights::location(
    const std::string& name) const {
  const auto location = locations_.find(name);
  if (location == locations_.end()) fail(directory_.string() + " has no tensor " + name);
  return location->second;
}

void HuggingFaceWeights::tie_head() {
  constexpr const char* kHead = "lm_head.weight";
  constexpr const char* kEmbedding = "wte.weight";
  const auto head = locations_.find(kHead);
  if (head == locations_.end()) return;
  // safetensors stores tensors that share memory under only one of their names.
  locations_.emplace(kEmbedding, head->second);
  const TensorEntry& logits = entry(kHead);
  const TensorEntry& embedding = entry(kEmbedding);
  const MappedFile logits_map = file_of(kHead).map(logits);
  const MappedFile embedding_map = file_of(kEmbedding).map(embedding);
  const bool is_equal = logits.dtype == embedding.dtype && logits.shape == embedding.shape &&
                        std::ranges::equal(logits_map.bytes(), embedding_map.bytes());
  if (!is_equal) {
    fail(directory_.string() + ": lm_head.weight differs from transformer.wte.weight",
         "if the head has weights of its own, config.json needs \"tie_word_embeddings\": false");
  }
  locations_.erase(kHead);
}

void write_huggingface(const std::filesystem::path& directory, const HuggingFaceConfig& config,
                       const std::vector<TensorHeader>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of) {
  make_directory(directory);
  SafetensorsWriter writer(directory / kWeightsName, huggingface_tensors(tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(i);
    require(static_cast<std::int64_t>(bytes.size()) == tensor_bytes(tensors[i]),
            "tensor " + tensors[i].name + ": wrong number of bytes");
    writer.write(writer.tensors()[i].name, bytes);
  }
  const TensorDtype dtype = tensors.empty() ? TensorDtype::f32 : tensors.front().dtype;
  write_file(directory / kConfigName, huggingface_config_text(config, dtype));
  writer.finish();
}

}  // namespace llmc
