#include "llmc/config/model_rules.h"

#include <string>

#include "llmc/base/error.h"

namespace llmc {

std::optional<SettingValue> implied_size(const TrainResolution& r,
                                         std::int64_t ModelConfig::*size) {
  if (r.facts.weights) return *r.facts.weights.*size;
  if (!r.config.model.name.empty()) return config_from_name(r.config.model.name).*size;
  return std::nullopt;
}

ModelConfig model_shape(const RunConfig& config, const RunFacts& facts) {
  ModelConfig shape = facts.weights ? *facts.weights : facts.default_shape;
  shape.context = config.model.context;
  shape.layers = config.model.layers;
  shape.heads = config.model.heads;
  shape.channels = config.model.channels;
  return shape;
}

namespace {

// Weights from a file define the model's sizes: a flag with another size is an error. This includes
// a shorter --context; --seq-len sets the length of shorter sequences.
void check_agreement(const TrainResolution& r) {
  const ModelConfig& weights = *r.facts.weights;
  const ModelSettings<std::optional>& typed = r.request.model;
  const auto require_equal = [&](const std::string& flag,
                                 const std::optional<std::int64_t>& typed_size, std::int64_t size) {
    if (typed_size.value_or(size) == size) return;
    fail_usage(flag + " " + std::to_string(*typed_size) + " does not agree with " +
                   std::to_string(size) + " in " + r.facts.weights_path,
               "leave the flag out: the weights set the model's sizes");
  };
  require_equal("--layers", typed.layers, weights.layers);
  require_equal("--heads", typed.heads, weights.heads);
  require_equal("--channels", typed.channels, weights.channels);
  require_equal("--context", typed.context, weights.context);
  if (!typed.name) return;
  const ModelConfig named_shape = config_from_name(*typed.name);
  if (!typed.layers) {
    require_equal("--model " + *typed.name + " with layers", named_shape.layers, weights.layers);
  }
  if (!typed.channels) {
    require_equal("--model " + *typed.name + " with channels", named_shape.channels,
                  weights.channels);
  }
}

}  // namespace

void check_model(const TrainResolution& r) {
  if (r.facts.weights) return check_agreement(r);
  check_usage([&] { check_config(model_shape(r.config, r.facts)); });
}

}  // namespace llmc
