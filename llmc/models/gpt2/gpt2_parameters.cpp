#include "llmc/models/gpt2/gpt2_parameters.h"

#include <cmath>
#include <string>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

namespace {

// Adds the adapters of the linear layers of a block, whose names begin with `h`.
void add_adapters(ParameterTable& table, const std::string& h, int block,
                  const AdapterShape& adapters) {
  for (const LayerAdapter& adapter : adapters.layers) {
    if (!adapter.layer.starts_with(h)) continue;
    const ParameterAxes axes = table.find(adapter.layer + ".weight").axes;
    if (adapters.kind == AdapterKind::lora) {
      table.add_lora(adapter.layer, block, axes, adapter.rank);
      continue;
    }
    const bool scales_outputs = adapter.layer.ends_with("attn.c_attn");
    std::vector<Axis> vector = scales_outputs ? axes.columns : axes.rows;
    if (scales_outputs && adapters.fixes_query) vector.front().size -= 1;
    table.add_ia3(adapter.layer, block, vector);
  }
}

}  // namespace

ParameterTable gpt2_parameters(const ModelConfig& config, const MeshPlace& place,
                               const RunShape& shape) {
  // OpenAI's values (Radford et al., 2019): stddev 0.02, for positions 0.01. The 2L projections
  // into the residual stream have a smaller stddev, 0.02 / sqrt(2L).
  constexpr float kStddev = 0.02f, kPositionStddev = 0.01f;
  const float residual_stddev = kStddev / std::sqrt(2.0f * static_cast<float>(config.layers));
  const Axis vocabulary{AxisName::vocabulary, config.vocabulary, true, kVocabularyMultiple};
  const Axis positions{AxisName::positions, config.context};
  const Axis channels{AxisName::channels, config.channels};
  const Axis qkv{AxisName::parts, 3};
  const Axis heads{AxisName::heads, config.heads, true};
  const Axis head_size{AxisName::head_size, config.head_size()};
  const Axis hidden{AxisName::hidden, config.hidden_size(), true};
  require(heads.size * head_size.size == config.channels,
          "the number of heads must divide the channels");

  ParameterTable table(place);
  table.add_matrix("wte.weight", 0, {{vocabulary}, {channels}}, kStddev);
  table.add_matrix("wpe.weight", 0, {{positions}, {channels}}, kPositionStddev);
  for (int l = 0; l < config.layers; ++l) {
    const std::string h = "h." + std::to_string(l) + ".";
    const int block = l + 1;
    table.add_norm(h + "ln_1", block, channels);
    table.add_linear(h + "attn.c_attn", block, {{channels}, {qkv, heads, head_size}}, kStddev);
    table.add_linear(h + "attn.c_proj", block, {{heads, head_size}, {channels}}, residual_stddev);
    table.add_norm(h + "ln_2", block, channels);
    table.add_linear(h + "mlp.c_fc", block, {{channels}, {hidden}}, kStddev);
    table.add_linear(h + "mlp.c_proj", block, {{hidden}, {channels}}, residual_stddev);
    add_adapters(table, h, block, shape.adapters);
  }
  table.add_norm("ln_f", static_cast<int>(config.layers) + 1, channels);
  const int head_block = static_cast<int>(config.layers) + 2;
  if (config.labels > 0) {
    const Axis labels{AxisName::labels, config.labels, true, kLabelMultiple};
    table.add_matrix(kScoreName, head_block, {{labels}, {channels}}, kStddev);
  } else if (!config.tied_head) {
    table.add_matrix("lm_head.weight", head_block, {{vocabulary}, {channels}}, kStddev);
  }
  table.finish(config.layers, shape.pipeline, shape.frozen, shape.base_codes);
  return table;
}

}  // namespace llmc
