#include "llmc/models/gpt2/block_backward.h"

#include <string>

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
    kept.ln_1 = kept.ln_1 || spec.name.ends_with("attn.c_attn.weight");
    kept.ln_2 = kept.ln_2 || spec.name.ends_with("mlp.c_fc.weight");
    kept.gelu = kept.gelu || spec.name.ends_with("mlp.c_proj.weight");
  }
  return kept;
}

}  // namespace llmc
