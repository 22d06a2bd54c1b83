// Merges an adapter into the weights of its base model. The result is a model without adapters. If
// the adapter has a classifier, its score.weight is the head of the result, in place of the base
// model's head; merged_config.h has the labels.
//
//     LoRA:  W + scale · Aᵀ · B   for the weight W (inputs, outputs) of a layer
//     IA3:   the columns of c_attn's weight and its bias, times the vector; the rows of
//            mlp.c_proj's weight, times the vector
//
// LoRA's sums are fp64. Each changed element is rounded to fp32 once, and only then to the dtype of
// the model. Memory: one parameter of the base, and the adapter of one layer.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "llmc/device/device.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/models/base_hash.h"
#include "llmc/models/loadable_weights.h"

namespace llmc {

class AdapterMerge {
 public:
  // Opens the adapter for the base model; both are directories, or `base` is a model file of llm.c.
  // Throws unless the adapter's tensors fit the base model.
  AdapterMerge(const std::filesystem::path& adapter, const std::filesystem::path& base);

  const AdapterConfig& config() const { return files_.config(); }

  // Changes the spec.size() values of a parameter of the base model to those of the merged model.
  // The adapter's score.weight replaces whatever values there are.
  // Throws if an element becomes infinite.
  void apply(const ParameterSpec& spec, std::span<float> values) const;

  // Throws unless the hash is that of the base model that the adapter was trained with. Adapters of
  // other programs have no hash and fit every base of the right shape.
  void require_base(const BaseHash& hash) const;

 private:
  void add_lora(const LayerAdapter& layer, const ParameterSpec& weight,
                std::span<float> values) const;
  void scale_by_ia3(const std::string& layer, const ParameterSpec& spec,
                    std::span<float> values) const;
  std::vector<float> load(const std::string& name) const;

  std::filesystem::path adapter_, base_;
  AdapterFiles files_;
};

// Loads the weights at `base` as load_weights() does, with the adapter merged; an empty path is no
// adapter. The weights are those of a model with read_merged_config(). Throws also if the base
// model is not the one that the adapter was trained with.
void load_merged_weights(const std::filesystem::path& base, const std::filesystem::path& adapter,
                         LoadableWeights& weights, Stream& stream);

}  // namespace llmc
