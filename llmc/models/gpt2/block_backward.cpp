#include "llmc/models/gpt2/block_backward.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "llmc/ops/adapter_shape.h"

namespace llmc {

BlockBackward block_backward(const ParameterTable& table, std::int64_t layer) {
  const auto learns = [&](const char* part) {
    return table.learns("h." + std::to_string(layer) + "." + part + ".");
  };
  BlockBackward needed;
  needed.input = table.first_learning_block() < layer + 1;
  needed.norm_output = needed.input || learns("ln_1");
  needed.attention = needed.norm_output || learns("attn.c_attn");
  needed.residual_mid = needed.attention || learns("attn.c_proj");
  needed.mlp_input = needed.residual_mid || learns("ln_2");
  needed.hidden = needed.mlp_input || learns("mlp.c_fc");
  return needed;
}

KeptInputs kept_inputs(const ParameterTable& table, const RunShape& run) {
  if (!run.training || run.qat != QatMode::none) return {};
  KeptInputs kept{.ln_1 = false, .ln_2 = false, .gelu = false};
  for (const ParameterSpec& spec : table.specs()) {
    if (!spec.trainable) continue;
    // Matrices of LoRA are in layers like the weights. IA3 reads the inputs that it scales.
    const auto is_matrix_of = [&](const char* layer) {
      return !spec.axes.columns.empty() && spec.name.find(layer) != spec.name.npos;
    };
    kept.ln_1 = kept.ln_1 || is_matrix_of(".attn.c_attn.");
    kept.ln_2 = kept.ln_2 || is_matrix_of(".mlp.c_fc.");
    kept.gelu =
        kept.gelu || is_matrix_of(".mlp.c_proj.") || spec.name.ends_with(".mlp.c_proj.ia3_l");
  }
  return kept;
}

AdapterSizes adapter_sizes(const ParameterTable& table) {
  AdapterSizes sizes;
  for (const ParameterSpec& spec : table.specs()) {
    for (std::size_t i = 0; i < kLinearLayers.size(); ++i) {
      if (spec.name.ends_with(std::string(kLinearLayers[i]) + ".lora_A.weight"))
        sizes.ranks[i] = std::max(sizes.ranks[i], spec.part.stored_rows);
    }
    sizes.scales_qkv = sizes.scales_qkv || spec.name.ends_with(".attn.c_attn.ia3_l");
  }
  return sizes;
}

}  // namespace llmc
