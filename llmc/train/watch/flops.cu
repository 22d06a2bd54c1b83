#include <algorithm>
#include <string>

#include "llmc/device/peak.h"
#include "llmc/models/gpt2/block_backward.h"
#include "llmc/train/watch/flops.h"

namespace llmc {

namespace {

// Whether the backward pass computes the gradient of what a parameter's layer reads.
bool passes_gradient_on(const ParameterTable& table, const ParameterSpec& spec) {
  const int final_block = table.find("ln_f.weight").block, first = table.first_learning_block();
  if (spec.block == 0 || spec.block > final_block) return true;  // the head
  if (spec.block < first) return false;
  if (spec.block == final_block) return first < final_block;
  const BlockBackward needed = block_backward(table, spec.block - 1);
  const auto is_of = [&](const char* layer) { return spec.name.find(layer) != std::string::npos; };
  if (is_of(".ln_1.")) return needed.input;
  if (is_of(".attn.c_attn.")) return needed.norm_output;
  if (is_of(".attn.c_proj.")) return needed.attention;
  if (is_of(".ln_2.")) return needed.residual_mid;
  if (is_of(".mlp.c_fc.")) return needed.mlp_input;
  return needed.hidden;
}

}  // namespace

FlopsPerToken flops_per_token(const ParameterTable& table, const ModelConfig& config,
                              std::int64_t T) {
  std::int64_t products = 0, attention_layers = 0;
  for (const ParameterSpec& spec : table.specs()) {
    const int passes = 1 + (spec.trainable ? 1 : 0) + (passes_gradient_on(table, spec) ? 1 : 0);
    products += passes * spec.flops_per_token();
  }
  const auto first = std::max<std::int64_t>(0, table.first_learning_block() - 1);
  for (std::int64_t l = 0; l < config.layers; ++l) {
    attention_layers += l >= first && block_backward(table, l).attention ? 3 : 1;
  }
  const double attention = 2.0 * static_cast<double>(attention_layers * T * config.channels);
  return {static_cast<double>(products) + attention, static_cast<double>(products) + 2 * attention};
}

Peak known_peak(double override_tflops, const DeviceProperties& properties, Dtype dtype,
                bool tf32) {
  if (override_tflops > 0) return {1e12 * override_tflops, "--peak-tflops"};
  const DataSheetPeak data_sheet = data_sheet_peak(properties, dtype, tf32);
  if (data_sheet.flops() > 0) {
    return {data_sheet.flops(), "data sheet: " + data_sheet.text()};
  }
  return {0, "measured: the fastest matrix product", true};
}

}  // namespace llmc
