// Adapters of a model for tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/ops/adapter_shape.h"

namespace llmc_test {

using namespace llmc;

// LoRA of this rank on the layers of each block, all four by default.
inline AdapterShape lora_shape(const ModelConfig& model, std::int64_t rank, double dropout = 0,
                               std::vector<std::string> layers = {kLinearLayers.begin(),
                                                                  kLinearLayers.end()}) {
  AdapterShape shape{.kind = AdapterKind::lora, .dropout = dropout};
  for (std::int64_t l = 0; l < model.layers; ++l) {
    for (const std::string& layer : layers) {
      shape.layers.push_back({.layer = "h." + std::to_string(l) + "." + layer,
                              .rank = rank,
                              .scale = 2.0 / static_cast<double>(rank)});
    }
  }
  return shape;
}

inline AdapterShape ia3_shape(const ModelConfig& model, bool fixes_query = false) {
  AdapterShape shape{.kind = AdapterKind::ia3, .fixes_query = fixes_query};
  for (std::int64_t l = 0; l < model.layers; ++l) {
    for (const char* layer : {"attn.c_attn", "mlp.c_proj"}) {
      shape.layers.push_back({.layer = "h." + std::to_string(l) + "." + layer});
    }
  }
  return shape;
}

// LoRA on all layers, with dropout, of another rank per layer; LoRA on the upper block alone; both
// forms of IA3.
inline std::vector<AdapterShape> adapter_shapes(const ModelConfig& model) {
  AdapterShape mixed = lora_shape(model, 4, 0.2);
  mixed.layers[1].rank = 11;
  mixed.layers[2].rank = 16;
  AdapterShape upper = lora_shape(model, 3, 0, {"attn.c_attn", "mlp.c_proj"});
  upper.layers.erase(upper.layers.begin(), upper.layers.end() - 2);
  return {mixed, upper, ia3_shape(model), ia3_shape(model, true)};
}

}  // namespace llmc_test
