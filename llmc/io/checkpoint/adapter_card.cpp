#include "llmc/io/checkpoint/adapter_card.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/io/checkpoint/model_card.h"

namespace llmc {

namespace {

// "4", or "4 to 16" for ranks or scales that differ between layers.
template <class Value>
std::string range_text(const AdapterShape& shape, const Value& value_of) {
  double low = value_of(shape.layers.front()), high = low;
  for (const LayerAdapter& layer : shape.layers) {
    low = std::min(low, value_of(layer));
    high = std::max(high, value_of(layer));
  }
  const std::string text = number_text("%.6g", low);
  return low == high ? text : text + " to " + number_text("%.6g", high);
}

std::string rank_text(const AdapterShape& shape) {
  return range_text(shape,
                    [](const LayerAdapter& layer) { return static_cast<double>(layer.rank); });
}

std::string method_text(const AdapterConfig& config) {
  if (config.shape.kind == AdapterKind::ia3) return "IA3";
  return config.rslora ? "LoRA, rank-stabilized" : "LoRA";
}

void add_method(AdapterRows& rows, const AdapterConfig& config) {
  const AdapterShape& shape = config.shape;
  rows.emplace_back("method", method_text(config));
  if (shape.kind == AdapterKind::ia3) {
    if (shape.fixes_query) rows.emplace_back("scaled by c_attn's vector", "keys and values");
    return;
  }
  rows.emplace_back("rank", rank_text(shape));
  rows.emplace_back("scale of the product",
                    range_text(shape, [](const LayerAdapter& layer) { return layer.scale; }));
  rows.emplace_back("dropout in training", number_text("%.6g", shape.dropout));
}

std::string layers_text(const AdapterShape& shape) {
  std::string text;
  for (const std::string kind : kLinearLayers) {
    const auto count = std::ranges::count_if(
        shape.layers, [&](const LayerAdapter& layer) { return layer.layer.ends_with("." + kind); });
    if (count == 0) continue;
    text += (text.empty() ? "" : ", ") + kind + " of " + std::to_string(count) +
            (count == 1 ? " block" : " blocks");
  }
  return text;
}

}  // namespace

AdapterRows adapter_rows(const AdapterConfig& config) {
  AdapterRows rows;
  add_method(rows, config);
  rows.emplace_back("adapted layers", layers_text(config.shape));
  return rows;
}

std::string adapter_summary(const AdapterConfig& config) {
  const bool is_lora = config.shape.kind == AdapterKind::lora;
  return method_text(config) + (is_lora ? " of rank " + rank_text(config.shape) : "") + " in " +
         layers_text(config.shape);
}

std::string adapter_card_text(const AdapterConfig& config, const std::string& name) {
  const bool classifies = config.labels > 0;
  std::string text = "---\n";
  if (!config.base.empty()) text += "base_model: " + json_quoted(config.base) + "\n";
  text += std::string("library_name: peft\npipeline_tag: ") +
          (classifies ? "text-classification" : "text-generation") + "\ntags:\n- gpt2\n- " +
          (config.shape.kind == AdapterKind::lora ? "lora" : "ia3") + "\n---\n\n# " + name +
          "\n\nAn adapter of a GPT-2: small trained parameters that are used together with the\n"
          "weights of the base model, which are not in this directory.\n\n";
  AdapterRows rows;
  if (!config.base.empty()) rows.emplace_back("base model", model_card_detail::code(config.base));
  for (auto& row : adapter_rows(config)) rows.push_back(std::move(row));
  if (classifies) rows.emplace_back("labels", std::to_string(config.labels));
  text += model_card_detail::table(rows) + "Load base model and adapter with PEFT:\n\n";
  const std::string model =
      classifies ? "AutoPeftModelForSequenceClassification" : "AutoPeftModelForCausalLM";
  const std::string labels = classifies ? ", num_labels=" + std::to_string(config.labels) : "";
  return text + "    from peft import " + model + "\n    model = " + model + ".from_pretrained(" +
         json_quoted(name) + labels + ")\n";
}

}  // namespace llmc
