#include "llmc/io/checkpoint/adapter_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/module_pattern.h"

namespace llmc {

double lora_scale(double alpha, std::int64_t rank, bool rslora) {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

namespace {

constexpr const char* kAllLinear = "all-linear";
// The heads that PEFT looks for when it classifies; GPT-2 has the second.
constexpr std::array<const char*, 2> kClassifiers = {"classifier", "score"};

// Fields that change what an adapter computes or stores, and that this engine lacks.
constexpr std::array<const char*, 11> kUnsupportedFields = {
    "use_dora",    "lora_bias",    "trainable_token_indices", "target_parameters",
    "use_qalora",  "use_bdlora",   "alora_invocation_tokens", "layer_replication",
    "kasa_config", "arrow_config", "monteclora_config"};

// Methods of init_lora_weights that subtract the initial product from the base model's weights.
constexpr std::array<const char*, 5> kChangesBase = {"pissa", "olora", "corda", "loftq", "lora_ga"};

// The field, or null if it is absent or null.
const Json* field(const Json& json, const char* key) {
  const Json* value = json_member(json, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

[[noreturn]] void fail_field(const std::string& what, const Json& value,
                             const std::string& allowed) {
  fail(what + " is " + printable(value.dump()), "allowed: " + allowed);
}

bool flag(const Json& json, const char* key, const std::string& file) {
  const Json* value = field(json, key);
  if (value != nullptr && !value->is_boolean()) {
    fail_field(file + ": " + key, *value, "true or false");
  }
  return value != nullptr && value->boolean();
}

std::int64_t checked_rank(const Json& value, const std::string& what) {
  constexpr std::int64_t kMaxRank = std::int64_t{1} << 31;
  const std::int64_t rank = json_size(value, what);
  if (rank < 1 || rank > kMaxRank) fail_field(what, value, "1 to 2147483648");
  return rank;
}

double checked_alpha(const Json& value, const std::string& what) {
  const double alpha = value.is_number() ? value.number() : 0;
  const auto rounded = static_cast<float>(alpha);
  if (!(rounded > 0 && rounded < std::numeric_limits<float>::infinity())) {
    fail_field(what, value, "a number above 0 that fp32 can hold");
  }
  return alpha;
}

// A list of names, or one text, which is an expression. `defaults` if the field is absent.
ModuleNames module_names(const Json& json, const char* key, const std::string& file,
                         std::vector<std::string> defaults) {
  ModuleNames modules{std::move(defaults), {}, file + ": " + key};
  const Json* value = field(json, key);
  if (value == nullptr) return modules;
  modules.names.clear();
  if (value->is_string()) {
    modules.expression = value->text();
  } else if (value->is_array()) {
    for (const Json& name : *value) modules.names.push_back(json_text(name, modules.what));
  } else {
    fail_field(modules.what, *value, "a list of names or a regular expression");
  }
  return modules;
}

// The members of rank_pattern or alpha_pattern in their order, which decides.
template <class T, class Check>
std::vector<std::pair<std::string, T>> pattern(const Json& json, const char* key,
                                               const std::string& file, const Check& check) {
  std::vector<std::pair<std::string, T>> entries;
  const Json* value = field(json, key);
  if (value == nullptr) return entries;
  if (!value->is_object()) fail_field(file + ": " + key, *value, "an object");
  for (const auto& [name, number] : value->items()) {
    entries.emplace_back(name, check(number, file + ": " + key + ": " + printable(name)));
  }
  return entries;
}

// The value of the first entry that matches, as PEFT's get_pattern_key selects it.
template <class T>
T value_for(const std::string& key, const std::vector<std::pair<std::string, T>>& entries,
            T default_value, const std::string& what) {
  for (const auto& [expression, value] : entries) {
    if (matches_fully("(.*\\.)?(" + expression + ")", key, what)) return value;
  }
  return default_value;
}

void refuse_unsupported(const Json& json, const std::string& file) {
  for (const char* key : kUnsupportedFields) {
    const Json* value = field(json, key);
    if (value == nullptr || *value == Json(false)) continue;
    if ((value->is_array() || value->is_object()) && value->empty()) continue;
    fail(file + ": " + key + " = " + printable(value->dump()) + " is not supported",
         "allowed: null or false; train the adapter without it");
  }
  const Json* bias = field(json, "bias");
  if (bias != nullptr && *bias != Json("none")) {
    fail_field(file + ": bias", *bias, "none: an adapter leaves the biases unchanged");
  }
  const Json* initial = field(json, "init_lora_weights");
  if (initial == nullptr || !initial->is_string()) return;
  for (const char* method : kChangesBase) {
    if (!initial->text().starts_with(method)) continue;
    fail(file + ": init_lora_weights is " + printable(initial->text()) +
             ", which changes the weights of the base model",
         "save the adapter with path_initial_model_for_weight_conversion, which makes PEFT convert "
         "it");
  }
}

}  // namespace

// ---- reading -------------------------------------------------------------------------------

bool ModuleNames::contain(const std::string& key) const {
  if (expression) return matches_fully(*expression, key, what);
  return std::ranges::any_of(
      names, [&](const std::string& name) { return key == name || key.ends_with("." + name); });
}

bool ModuleNames::contain_ending_of(const std::string& key) const {
  if (expression) return matches_fully(*expression, key, what);
  return std::ranges::any_of(names, [&](const std::string& name) { return key.ends_with(name); });
}

PeftSettings::PeftSettings(std::string_view text, const std::string& file) : file_(file) {
  const Json json = parse_json(text, file, KeyOrder::as_written);
  if (!json.is_object()) fail(file + " is not a JSON object");
  const Json* type = field(json, "peft_type");
  if (type == nullptr) fail(file + " has no peft_type");
  if (*type == Json("LORA")) {
    kind_ = AdapterKind::lora;
  } else if (*type == Json("IA3")) {
    kind_ = AdapterKind::ia3;
  } else {
    fail_field(file + ": peft_type", *type, "LORA or IA3");
  }
  refuse_unsupported(json, file);
  read_task(json);
  if (kind_ == AdapterKind::lora) read_lora(json);
  read_modules(json);
  read_blocks(json);
  const Json* base = field(json, "base_model_name_or_path");
  if (base != nullptr) base_ = json_text(*base, file + ": base_model_name_or_path");
}

void PeftSettings::read_task(const Json& json) {
  const Json* task = field(json, "task_type");
  const bool is_language_model = task != nullptr && *task == Json("CAUSAL_LM");
  classifies_ = task != nullptr && *task == Json("SEQ_CLS");
  if (task != nullptr && !is_language_model && !classifies_) {
    fail_field(file_ + ": task_type", *task, "CAUSAL_LM, SEQ_CLS or null");
  }
  const ModuleNames saved = module_names(json, "modules_to_save", file_, {});
  const bool is_known = std::ranges::all_of(saved.names, [](const std::string& name) {
    return std::ranges::find(kClassifiers, name) != kClassifiers.end();
  });
  if (saved.expression || !is_known || (is_language_model && !saved.names.empty())) {
    fail_field(saved.what, *field(json, "modules_to_save"),
               is_language_model ? "null if task_type is CAUSAL_LM"
                                 : "null, or a list of classifier and score");
  }
  classifies_ |= !saved.names.empty();
}

void PeftSettings::read_lora(const Json& json) {
  const Json* rank = field(json, "r");
  rank_ = rank == nullptr ? 8 : checked_rank(*rank, file_ + ": r");
  const Json* alpha = field(json, "lora_alpha");
  alpha_ = alpha == nullptr ? 8 : checked_alpha(*alpha, file_ + ": lora_alpha");
  const Json* dropout = field(json, "lora_dropout");
  if (dropout != nullptr) {
    dropout_ = dropout->is_number() ? dropout->number() : -1;
    if (!(dropout_ >= 0 && dropout_ < 1)) {
      fail_field(file_ + ": lora_dropout", *dropout, "a number from 0 to below 1");
    }
  }
  rslora_ = flag(json, "use_rslora", file_);
  rank_pattern_ = pattern<std::int64_t>(json, "rank_pattern", file_, checked_rank);
  alpha_pattern_ = pattern<double>(json, "alpha_pattern", file_, checked_alpha);
}

void PeftSettings::read_modules(const Json& json) {
  // If the field is null, PEFT adapts these layers of a GPT-2.
  const bool is_lora = kind_ == AdapterKind::lora;
  targets_ = module_names(json, "target_modules", file_,
                          is_lora ? std::vector<std::string>{"c_attn"}
                                  : std::vector<std::string>{"c_attn", "mlp.c_proj"});
  if (targets_.expression) {
    std::string lower = *targets_.expression;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    all_linear_ = lower == kAllLinear;
  }
  excluded_ = module_names(json, "exclude_modules", file_, {});
  feedforward_ = module_names(json, "feedforward_modules", file_, {"mlp.c_proj"});
}

void PeftSettings::read_blocks(const Json& json) {
  if (kind_ != AdapterKind::lora) return;  // IA3 has no such fields
  blocks_pattern_ = module_names(json, "layers_pattern", file_, {});
  // One text is one pattern of a list.
  if (blocks_pattern_.expression) {
    if (!blocks_pattern_.expression->empty()) blocks_pattern_.names = {*blocks_pattern_.expression};
    blocks_pattern_.expression.reset();
  }
  const std::string what = file_ + ": layers_to_transform";
  const Json* blocks = field(json, "layers_to_transform");
  if (blocks == nullptr) return;
  blocks_ = blocks->is_array() ? json_sizes(*blocks, what) : std::vector{json_size(*blocks, what)};
  if (targets_.expression) {
    fail_field(what, *blocks, "null if target_modules is a text instead of a list of names");
  }
}

bool PeftSettings::selects_block(std::int64_t block, const std::string& key) const {
  if (blocks_.empty()) return true;
  if (std::ranges::find(blocks_, block) == blocks_.end()) return false;
  if (blocks_pattern_.names.empty()) return true;
  return std::ranges::any_of(blocks_pattern_.names, [&](const std::string& name) {
    return matches_fully("(?:.*\\.)?(?:" + name + ")\\.\\d+\\..*", key, blocks_pattern_.what);
  });
}

bool PeftSettings::adapts(std::int64_t block, const std::string& name) const {
  const std::string key = "transformer.h." + std::to_string(block) + "." + name;
  if (excluded_.contain(key)) return false;
  if (all_linear_) return true;
  if (!targets_.contain(key)) return false;
  const bool is_whole_name = std::ranges::find(targets_.names, key) != targets_.names.end();
  return is_whole_name || selects_block(block, key);
}

LayerAdapter PeftSettings::lora(const std::string& layer) const {
  const std::string key = "transformer." + layer;
  const std::int64_t rank = value_for(key, rank_pattern_, rank_, file_ + ": rank_pattern");
  const double alpha = value_for(key, alpha_pattern_, alpha_, file_ + ": alpha_pattern");
  return {layer, rank, lora_scale(alpha, rank, rslora_)};
}

bool PeftSettings::scales_inputs(const std::string& layer) const {
  return feedforward_.contain_ending_of("transformer." + layer);
}

// ---- writing -------------------------------------------------------------------------------

namespace {

// The layer without its block: "attn.c_attn" of "h.0.attn.c_attn".
std::string name_in_block(const std::string& layer) {
  return layer.substr(layer.find('.', layer.find('.') + 1) + 1);
}

// The shortest name that means only layers of this kind in PEFT.
std::string short_name(const std::string& kind) {
  return kind == "attn.c_proj" || kind == "mlp.c_proj" ? kind : kind.substr(kind.find('.') + 1);
}

// The names of all adapted layers: of their kinds if each kind is adapted in all blocks or in none,
// else of each layer. `kind` selects one kind.
Json target_names(const AdapterShape& shape, std::int64_t num_blocks, const char* kind = nullptr) {
  const auto count = [&](const char* name) {
    return std::ranges::count_if(shape.layers, [&](const LayerAdapter& layer) {
      return name_in_block(layer.layer) == name;
    });
  };
  const bool is_uniform = std::ranges::all_of(kLinearLayers, [&](const char* name) {
    return count(name) == 0 || count(name) == num_blocks;
  });
  const auto is_chosen = [&](const std::string& name) { return kind == nullptr || name == kind; };
  Json names = Json::array();
  if (is_uniform) {
    for (const char* name : kLinearLayers) {
      if (count(name) > 0 && is_chosen(name)) names.push_back(short_name(name));
    }
  } else {
    for (const LayerAdapter& layer : shape.layers) {
      if (is_chosen(name_in_block(layer.layer))) names.push_back("transformer." + layer.layer);
    }
  }
  return names;
}

// The alpha of the layer's scale; a whole number if lora_scale() computes that scale from it.
double alpha_of(const LayerAdapter& layer, bool rslora) {
  const auto rank = static_cast<double>(layer.rank);
  const double alpha = layer.scale * (rslora ? std::sqrt(rank) : rank);
  const double whole = std::round(alpha);
  return lora_scale(whole, layer.rank, rslora) == layer.scale ? whole : alpha;
}

// A whole number without a fraction, as PEFT writes it.
Json number_json(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::round(value) && std::fabs(value) < kExact) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

// rank_pattern and alpha_pattern: one entry for each layer that differs from the default.
void add_patterns(Json& json, const AdapterConfig& config) {
  Json ranks = Json::object(), alphas = Json::object();
  for (const LayerAdapter& layer : config.shape.layers) {
    const std::string key = "transformer." + layer.layer;
    if (layer.rank != config.rank) ranks[key] = layer.rank;
    if (layer.scale != lora_scale(config.alpha, layer.rank, config.rslora)) {
      alphas[key] = number_json(alpha_of(layer, config.rslora));
    }
  }
  json["rank_pattern"] = ranks;
  json["alpha_pattern"] = alphas;
}

}  // namespace

std::string adapter_config_text(const AdapterConfig& config, std::int64_t num_blocks) {
  const AdapterShape& shape = config.shape;
  require(shape.kind != AdapterKind::none && !shape.layers.empty(), "there is no adapter to write");
  const bool is_lora = shape.kind == AdapterKind::lora;
  Json json = {{"base_model_name_or_path", config.base.empty() ? Json(nullptr) : Json(config.base)},
               {"fan_in_fan_out", true},
               {"inference_mode", true},
               {"modules_to_save", nullptr},
               {"peft_type", is_lora ? "LORA" : "IA3"},
               {"peft_version", "0.21.0"},
               {"target_modules", target_names(shape, num_blocks)},
               {"task_type", config.labels > 0 ? "SEQ_CLS" : "CAUSAL_LM"}};
  if (config.labels > 0) json["modules_to_save"] = Json::array({kClassifiers[0], kClassifiers[1]});
  if (is_lora) {
    json["r"] = config.rank;
    json["lora_alpha"] = number_json(config.alpha);
    json["lora_dropout"] = shape.dropout;
    json["use_rslora"] = config.rslora;
    json["bias"] = "none";
    add_patterns(json, config);
  } else {
    json["feedforward_modules"] = target_names(shape, num_blocks, "mlp.c_proj");
  }
  return json.dump(2) + "\n";
}

}  // namespace llmc
