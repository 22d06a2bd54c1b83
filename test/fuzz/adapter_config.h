// Fuzz target for PEFT's adapter_config.json. The layers, ranks and scales that it describes stay
// the same when they are written and read again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/adapter_config.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

// The layers that settings adapt in a model of two blocks.
inline std::vector<llmc::LayerAdapter> adapted_layers(const llmc::PeftSettings& settings) {
  std::vector<llmc::LayerAdapter> layers;
  for (std::int64_t block = 0; block < 2; ++block) {
    for (const std::string name : llmc::kLinearLayers) {
      if (!settings.adapts(block, name)) continue;
      const std::string layer = "h." + std::to_string(block) + "." + name;
      if (settings.kind() == llmc::AdapterKind::lora) {
        layers.push_back(settings.lora(layer));
      } else {
        (void)settings.scales_inputs(layer);
        layers.push_back({.layer = layer});
      }
    }
  }
  return layers;
}

inline void adapter_config(std::string_view input) {
  constexpr const char* kName = "adapter_config.json";
  is_rejected(kName, [&] {
    const llmc::PeftSettings settings(input, kName);
    llmc::AdapterConfig config{.rank = settings.rank(),
                               .alpha = settings.alpha(),
                               .rslora = settings.rslora(),
                               .labels = settings.classifies() ? 2 : 0,
                               .base = settings.base()};
    config.shape = {
        .kind = settings.kind(), .layers = adapted_layers(settings), .dropout = settings.dropout()};
    if (config.shape.layers.empty()) return;
    const llmc::PeftSettings again(llmc::adapter_config_text(config, 2), kName);
    const bool is_equal =
        again.kind() == settings.kind() && again.rank() == settings.rank() &&
        again.alpha() == settings.alpha() && again.rslora() == settings.rslora() &&
        again.dropout() == settings.dropout() && again.classifies() == settings.classifies() &&
        again.base() == settings.base();
    expect(is_equal && adapted_layers(again) == config.shape.layers,
           "reading the settings of an adapter and writing them again changes nothing");
  });
}

}  // namespace llmc_fuzz
