#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/threads.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/merged_config.h"
#include "llmc/models/pretrained.h"

namespace llmc {
namespace {

// Opens an adapter. Errors name the base model too.
AdapterFiles open_adapter(const std::filesystem::path& adapter, const std::filesystem::path& base) {
  const HuggingFaceConfig model = read_pretrained_config(base);
  try {
    return {adapter, model};
  } catch (const Error& error) {
    const std::string& text = error.marked_text();
    fail("adapter for the base " + base.string() + ": " + text,
         text.find("\n  hint: ") == text.npos ? "give the base model of the adapter" : "");
  }
}

// Weights in which the adapter is merged as they are loaded.
class MergingWeights final : public LoadableWeights {
 public:
  MergingWeights(const AdapterMerge& adapter, LoadableWeights& weights)
      : adapter_(adapter), weights_(weights) {}

  const ParameterTable& table() const override { return weights_.table(); }
  void set_weight(const ParameterSpec& spec, const float* values, Stream& stream) override {
    values_.assign(values, values + spec.size());
    adapter_.apply(spec, values_);
    weights_.set_weight(spec, values_.data(), stream);
  }
  bool first_rank() const override { return weights_.first_rank(); }

 private:
  const AdapterMerge& adapter_;
  LoadableWeights& weights_;
  std::vector<float> values_;
};

}  // namespace

AdapterMerge::AdapterMerge(const std::filesystem::path& adapter, const std::filesystem::path& base)
    : adapter_(adapter), base_(base), files_(open_adapter(adapter, base)) {
  read_merged_config(base, adapter);
}

std::vector<float> AdapterMerge::load(const std::string& name) const {
  const auto tensor = std::ranges::find(files_.tensors(), name, &AdapterTensor::name);
  std::vector<float> values(static_cast<std::size_t>(*checked_count(tensor->shape)));
  files_.load(name, values);
  return values;
}

void AdapterMerge::apply(const ParameterSpec& spec, std::span<float> values) const {
  if (is_score(spec) && config().labels > 0) return files_.load(spec.name, values);
  const std::size_t dot = spec.name.rfind('.');
  const std::string layer = spec.name.substr(0, dot);
  const auto adapter = std::ranges::find(config().shape.layers, layer, &LayerAdapter::layer);
  if (adapter == config().shape.layers.end()) return;
  if (config().shape.kind == AdapterKind::ia3) {
    scale_by_ia3(layer, spec, values);
  } else if (spec.name.ends_with(".weight")) {
    add_lora(*adapter, spec, values);
  }
  check_elements(
      values, spec.shape, is_not_finite, "not finite in fp32",
      [&] { return adapter_.string() + " merged into " + spec.name; },
      "give an adapter whose training did not diverge");
}

void AdapterMerge::add_lora(const LayerAdapter& layer, const ParameterSpec& weight,
                            std::span<float> values) const {
  const std::vector<float> a = load(layer.layer + ".lora_A.weight");  // (R, K)
  const std::vector<float> b = load(layer.layer + ".lora_B.weight");  // (R, N)
  const auto K = static_cast<std::size_t>(weight.shape[0]);
  const auto N = static_cast<std::size_t>(weight.shape[1]);
  const auto R = static_cast<std::size_t>(layer.rank);
  for_each_parallel(K, cpu_threads(), [&](std::size_t k) {
    const std::span<float> row = values.subspan(k * N, N);
    std::vector<double> sums(row.begin(), row.end());
    for (std::size_t r = 0; r < R; ++r) {
      const double factor = layer.scale * static_cast<double>(a[r * K + k]);
      const float* b_row = b.data() + r * N;
      for (std::size_t n = 0; n < N; ++n) sums[n] += factor * static_cast<double>(b_row[n]);
    }
    std::ranges::transform(sums, row.begin(), [](double x) { return static_cast<float>(x); });
  });
}

void AdapterMerge::scale_by_ia3(const std::string& layer, const ParameterSpec& spec,
                                std::span<float> values) const {
  const bool scales_outputs = layer.ends_with(".attn.c_attn");
  const bool is_bias = spec.name.ends_with(".bias");
  if (is_bias && !scales_outputs) return;
  const std::vector<float> vector = load(layer + ".ia3_l");
  const auto columns = static_cast<std::size_t>(spec.shape.back());
  // c_attn's vector has ones for queries if the adapter leaves them unchanged.
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= vector[scales_outputs ? i % columns : i / columns];
  }
}

void AdapterMerge::require_base(const BaseHash& hash) const {
  if (config().base_hash.empty() || config().base_hash == hash.text()) return;
  fail("the adapter " + adapter_.string() + " was trained with another base model than " +
           base_.string() + ": the hashes of the weights are " + config().base_hash + " in " +
           kAdapterBaseName + " and " + hash.text(),
       "give the base model of the adapter" + (config().base.empty() ? "" : ", " + config().base));
}

void load_merged_weights(const std::filesystem::path& base, const std::filesystem::path& adapter,
                         LoadableWeights& weights, Stream& stream) {
  if (adapter.empty()) return load_weights(base, weights, stream);
  const AdapterMerge merge(adapter, base);
  MergingWeights merging(merge, weights);
  BaseHash hash;
  load_weights(base, merging, stream, &hash);
  const ParameterSpec& head = weights.table().head();
  if (is_score(head) && read_pretrained_config(base).label_names.empty()) {
    merging.set_weight(head, std::vector<float>(static_cast<std::size_t>(head.size())).data(),
                       stream);
  }
  if (weights.first_rank()) merge.require_base(hash);
}

}  // namespace llmc
