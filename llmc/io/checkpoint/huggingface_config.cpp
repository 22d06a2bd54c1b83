#include "llmc/io/checkpoint/huggingface_config.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/io/checkpoint/token_ids.h"

namespace llmc {

namespace {

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

Json optional_json(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
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
constexpr const char* kOneLabelPerText = "single_label_classification";
constexpr std::int64_t kMaxLabels = 65536;

bool is_classifier(const Json& json) {
  const Json* names = json_member(json, "architectures");
  return names != nullptr && names->is_array() &&
         std::ranges::any_of(*names, [](const Json& name) { return name == Json(kClassifier); });
}

// LABEL_0, LABEL_1, ... for num_labels of config.json, or for two labels without it: transformers
// leaves out id2label if it has these names.
std::vector<std::string> default_names(const Json& json, const std::string& file) {
  const Json* value = json_member(json, "num_labels");
  const std::int64_t count = value == nullptr ? 2 : json_size(*value, file + ": num_labels");
  if (count < 2 || count > kMaxLabels) {
    fail(file + ": num_labels is " + std::to_string(count),
         "allowed: 2 to " + std::to_string(kMaxLabels));
  }
  return default_label_names(count);
}

// Returns the names in id2label, {"0": "negative", "1": "positive"}, in the order of the labels.
std::vector<std::string> label_names(const Json& json, const std::string& file) {
  const Json* map = json_member(json, "id2label");
  if (map == nullptr || map->is_null()) return default_names(json, file);
  const std::string what = file + ": id2label";
  const std::size_t count = map->is_object() ? map->size() : 0;
  if (count < 2 || count > kMaxLabels) {
    fail(what + (map->is_object() ? " has " + std::to_string(count) + " labels" : " is no object"),
         "give at least two labels, such as {\"0\": \"negative\", \"1\": \"positive\"}, and at "
         "most " +
             std::to_string(kMaxLabels));
  }
  const Json* num_labels = json_member(json, "num_labels");
  if (num_labels != nullptr && *num_labels != Json(count)) {
    fail(what + " has " + std::to_string(count) + " labels, but num_labels is " +
             printable(num_labels->dump()),
         "leave num_labels out");
  }
  std::map<std::string_view, const Json*> by_key;
  for (const auto& [key, name] : map->items()) by_key[key] = &name;
  std::vector<std::string> names;
  std::set<std::string_view> known;
  for (std::size_t id = 0; id < count; ++id) {
    const auto entry = by_key.find(std::to_string(id));
    if (entry == by_key.end()) {
      fail(what + " has no label " + std::to_string(id),
           "number its " + std::to_string(count) + " labels from 0");
    }
    const std::string& name = json_text(*entry->second, what + ": label " + std::to_string(id));
    if (!known.insert(name).second) {
      fail(what + " has two labels with the name " + printable(name),
           "give each label a name of its own");
    }
    names.push_back(name);
  }
  return names;
}

// Reads the names of the labels and the pad token of a classifier. Language models have neither,
// although transformers may write an id2label with default names for them.
void read_classifier(HuggingFaceConfig& config, const Json& json, const std::string& file) {
  if (!is_classifier(json)) return;
  const Json* problem = json_member(json, "problem_type");
  if (problem != nullptr && !problem->is_null() && *problem != Json(kOneLabelPerText)) {
    fail(file + ": problem_type is " + printable(problem->dump()),
         std::string("supported: ") + kOneLabelPerText);
  }
  config.label_names = label_names(json, file);
  config.pad_token_id = token_id(json, "pad_token_id", file);
  if (config.pad_token_id.value_or(0) >= config.vocab_size) {
    fail(file + ": pad_token_id is " + std::to_string(*config.pad_token_id),
         "allowed: null, or a token below vocab_size = " + std::to_string(config.vocab_size));
  }
}

void add_classifier(Json& json, const HuggingFaceConfig& config) {
  std::vector<JsonMember> id2label, label2id;
  for (std::size_t id = 0; id < config.label_names.size(); ++id) {
    id2label.push_back({std::to_string(id), config.label_names[id]});
    label2id.push_back({config.label_names[id], id});
  }
  json["id2label"] = Json::from_members(std::move(id2label));
  json["label2id"] = Json::from_members(std::move(label2id));
  json["problem_type"] = kOneLabelPerText;
  json["pad_token_id"] = optional_json(config.pad_token_id);
}

}  // namespace

std::vector<std::string> default_label_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < count; ++label) {
    names.push_back("LABEL_" + std::to_string(label));
  }
  return names;
}

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
  read_classifier(config, json, file);
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
  const bool has_labels = !config.label_names.empty();
  Json json = {{"architectures", {has_labels ? kClassifier : "GPT2LMHeadModel"}},
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
  if (has_labels) add_classifier(json, config);
  return json.dump(2) + "\n";
}

std::string classifier_config_text(std::string_view text, const HuggingFaceConfig& config) {
  Json json = parse_json(text, kConfigName, KeyOrder::as_written);
  json["architectures"] = Json::array({kClassifier});
  json.erase("num_labels");
  add_classifier(json, config);
  return json.dump(2) + "\n";
}

std::string change_config_dtype(std::string_view config, const std::string& dtype) {
  Json json = parse_json(config, kConfigName, KeyOrder::as_written);
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace llmc
