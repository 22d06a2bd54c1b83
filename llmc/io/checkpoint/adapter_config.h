// adapter_config.json of PEFT (Hugging Face's library of adapters, version 0.21): the method, the
// layers that it adapts, and their scales. PEFT's names of layers have the prefix `transformer.`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/ops/adapter_shape.h"

namespace llmc {

class Json;

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterBaseName = "llmc_base.json";

// An adapter as its files describe it.
struct AdapterConfig {
  AdapterShape shape = {};
  std::int64_t rank = 8;    // r: of the layers that have no rank of their own
  double alpha = 8;         // lora_alpha: of the layers that have no alpha of their own
  bool rslora = false;      // scale = alpha / sqrt(rank) instead of alpha / rank
  std::int64_t labels = 0;  // rows of score.weight; 0 without a classifier
  std::string base = {};    // base_model_name_or_path: a directory or the name of a model; may be
                            // empty
  std::string base_hash = {};  // of the base model's names, shapes and values; may be empty

  bool operator==(const AdapterConfig&) const = default;
};

// The scale of LoRA's product, as PEFT computes it.
double lora_scale(double alpha, std::int64_t rank, bool rslora);

// ---- reading -------------------------------------------------------------------------------

// Names of modules in adapter_config.json: a list of names, or a regular expression.
struct ModuleNames {
  std::vector<std::string> names = {};
  std::optional<std::string> expression = {};  // instead of names
  std::string what = {};                       // "DIR/adapter_config.json: target_modules"

  // Whether `key`, such as "transformer.h.0.attn.c_attn", is one of the names, ends with "." and
  // one of them, or matches the expression.
  bool contain(const std::string& key) const;
  // The same, but the end need not begin at a dot: PEFT's rule for feedforward_modules.
  bool contain_ending_of(const std::string& key) const;
};

// The settings that adapter_config.json has for a GPT-2. Fields that it lacks have PEFT's defaults.
class PeftSettings {
 public:
  // Errors call the text `file`. Throws unless this engine computes what the settings describe; the
  // error names the field.
  PeftSettings(std::string_view text, const std::string& file);

  AdapterKind kind() const { return kind_; }
  std::int64_t rank() const { return rank_; }
  double alpha() const { return alpha_; }
  double dropout() const { return dropout_; }
  bool rslora() const { return rslora_; }
  bool classifies() const { return classifies_; }  // score.weight is a part of the adapter
  const std::string& base() const { return base_; }

  // Whether layer `name` of block `block`, such as "attn.c_attn", has an adapter.
  bool adapts(std::int64_t block, const std::string& name) const;

  // Rank and scale of LoRA in a layer such as "h.0.attn.c_attn".
  LayerAdapter lora(const std::string& layer) const;

  // Whether IA3 scales the inputs of the layer instead of its outputs.
  bool scales_inputs(const std::string& layer) const;

 private:
  void read_lora(const Json& json);
  void read_task(const Json& json);
  void read_modules(const Json& json);
  void read_blocks(const Json& json);
  bool selects_block(std::int64_t block, const std::string& key) const;

  std::string file_;
  AdapterKind kind_ = AdapterKind::none;
  std::int64_t rank_ = 0;
  double alpha_ = 0, dropout_ = 0;
  bool rslora_ = false, classifies_ = false;
  std::string base_;
  ModuleNames targets_, excluded_, feedforward_;
  bool all_linear_ = false;
  std::vector<std::int64_t> blocks_;  // layers_to_transform; empty: all
  ModuleNames blocks_pattern_;        // names of the list of blocks; empty: any
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern_;
  std::vector<std::pair<std::string, double>> alpha_pattern_;
};

// ---- writing -------------------------------------------------------------------------------

// The text of adapter_config.json for a model of `num_blocks` blocks.
std::string adapter_config_text(const AdapterConfig& config, std::int64_t num_blocks);

}  // namespace llmc
