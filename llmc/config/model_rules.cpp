#include "llmc/config/model_rules.h"

#include <string>

#include "llmc/base/error.h"
#include "llmc/config/huggingface_shape.h"
#include "llmc/config/model_name.h"

namespace llmc {

std::optional<SettingValue> implied_size(const TrainResolution& r,
                                         std::int64_t ModelConfig::*size) {
  if (r.facts.weights) return *r.facts.weights.*size;
  if (!r.config.model.name.empty()) return config_from_name(r.config.model.name).*size;
  return std::nullopt;
}

ModelConfig model_shape(const RunConfig& config, const RunFacts& facts) {
  ModelConfig shape = facts.weights.value_or(facts.default_shape);
  if (!facts.weights && !config.model.name.empty()) {
    shape = config_from_name(config.model.name);
    shape.vocabulary = facts.default_shape.vocabulary;
  }
  shape.context = config.model.context;
  shape.layers = config.model.layers;
  shape.heads = config.model.heads;
  shape.channels = config.model.channels;
  if (config.task.kind == Task::classify && shape.labels == 0) shape.labels = facts.labels;
  return shape;
}

namespace {

// Throws if a config.json that --model names differs from the weights in what GPT-2 has only one
// value of.
void require_equal_family(const TrainResolution& r, const std::string& name,
                          const ModelConfig& named_shape) {
  const auto family = [](const ModelConfig& shape) {
    return differences_from_gpt2(to_huggingface(shape, std::nullopt));
  };
  const std::string named = family(named_shape), stored = family(*r.facts.weights);
  if (!name.ends_with(".json") || named == stored) return;
  const auto text = [](const std::string& differences) {
    return differences.empty() ? "the properties of GPT-2" : differences;
  };
  fail_usage("--model " + name + " with " + text(named) + " does not agree with " + text(stored) +
                 " in " + r.facts.weights_path,
             "leave the flag out: the weights define the model");
}

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
  require_equal_family(r, *typed.name, named_shape);
}

}  // namespace

void check_model(const TrainResolution& r) {
  if (r.facts.weights) return check_agreement(r);
  check_usage([&] { check_config(model_shape(r.config, r.facts)); });
}

}  // namespace llmc
