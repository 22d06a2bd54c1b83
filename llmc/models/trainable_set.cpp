#include "llmc/models/trainable_set.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/config/huggingface_shape.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

RunShape with_frozen(RunShape shape, const ModelConfig& model, std::vector<std::string> frozen) {
  shape.frozen = std::move(frozen);
  const ParameterTable table = gpt2_parameters(model, {}, shape);
  shape.pipeline =
      without_backward_below(std::move(shape.pipeline), table.first_learning_block() - 1);
  return shape;
}

namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// The names outside blocks and in the first one.
std::string names_text(const ParameterTable& table) {
  const int final_block = table.find("ln_f.weight").block;
  std::string text;
  for (const ParameterSpec& spec : table.specs()) {
    const bool is_like_first = 1 < spec.block && spec.block < final_block;
    if (!is_like_first) text += (text.empty() ? "" : ", ") + spec.name;
  }
  return text;
}

void require_match(const char* flag, const std::string& pattern, const ParameterTable& table) {
  const auto is_match = [&](const ParameterSpec& spec) { return matches(pattern, spec.name); };
  if (std::ranges::any_of(table.specs(), is_match)) return;
  const int layers = table.find("ln_f.weight").block - 1;
  fail_usage(
      std::string(flag) + ": '" + pattern + "' matches no parameter",
      "a pattern covers a whole name, with * for any text; the names of this model, with h.0 "
      "to h." +
          std::to_string(layers - 1) + ": " + names_text(table));
}

// The head of a classifier always learns, so a pattern of --freeze must match another parameter.
void require_more_than_score(const std::string& pattern, const ParameterTable& table) {
  const auto is_frozen = [&](const ParameterSpec& spec) {
    return !is_score(spec) && matches(pattern, spec.name);
  };
  if (std::ranges::any_of(table.specs(), is_frozen)) return;
  fail_usage("--freeze: '" + pattern + "' matches only the head of the classifier, which learns",
             "leave the pattern out");
}

// The names of parameters that the patterns leave frozen.
std::vector<std::string> frozen_names(const FinetuneSettings<Resolved>& finetune,
                                      const ParameterTable& table) {
  const bool names_learning = !finetune.train_only.empty();
  const std::vector<std::string>& patterns = names_learning ? finetune.train_only : finetune.freeze;
  const char* flag = names_learning ? "--train-only" : "--freeze";
  for (const std::string& pattern : patterns) {
    require_match(flag, pattern, table);
    if (!names_learning) require_more_than_score(pattern, table);
  }
  std::vector<std::string> frozen;
  for (const ParameterSpec& spec : table.specs()) {
    const bool is_match = std::ranges::any_of(
        patterns, [&](const std::string& pattern) { return matches(pattern, spec.name); });
    if (is_match != names_learning && !is_score(spec)) frozen.push_back(spec.name);
  }
  if (frozen.size() < table.specs().size()) return frozen;
  fail_usage("--freeze: the patterns match all parameters, so there is nothing to train",
             "leave out the parameters that learn");
}

// The adapter in a directory. That of a resumed run must be the one that the flags ask for.
AdapterConfig read_adapter(const RunConfig& config, const std::string& directory) {
  const bool fixes_query = config.finetune.ia3_targets == Ia3Targets::kv;
  const AdapterFiles files(directory, to_huggingface(config.shape, std::nullopt), fixes_query);
  AdapterConfig adapter = files.config();
  if (adapter.labels != config.shape.labels) {
    const auto text = [](std::int64_t labels) {
      return labels == 0 ? std::string("a language model")
                         : "a classifier with " + std::to_string(labels) + " labels";
    };
    fail("--adapter " + directory + " is of " + text(adapter.labels) + ", and the run trains " +
             text(config.shape.labels),
         adapter.labels > 0 ? "use --task classify with data of these labels"
                            : "begin a new adapter with --lora or --ia3");
  }
  const AdapterConfig expected = new_adapter(config.finetune, config.shape);
  if (expected.shape.kind == AdapterKind::none) return adapter;
  if (expected.shape.kind != adapter.shape.kind || expected.shape.layers != adapter.shape.layers) {
    fail_usage("the flags ask for another adapter than that of " + directory,
               "resume with the --lora and --ia3 flags of the run");
  }
  adapter.shape.dropout = expected.shape.dropout;
  return adapter;
}

}  // namespace

void choose_trainable(RunConfig& config, const std::string& adapter) {
  config.adapter =
      adapter.empty() ? new_adapter(config.finetune, config.shape) : read_adapter(config, adapter);
  config.adapter.labels = config.shape.labels;
  const std::string& base = config.model.init_from;
  config.adapter.base = base.empty() ? "" : std::filesystem::absolute(base).string();
  RunShape shape;
  shape.pipeline = config.pipeline;
  shape.adapters = config.adapter.shape;
  shape.base_codes = config.finetune.base_quant == BaseQuant::w8;
  const bool has_patterns = !config.finetune.train_only.empty() || !config.finetune.freeze.empty();
  std::vector<std::string> frozen;
  if (has_patterns) frozen = frozen_names(config.finetune, gpt2_parameters(config.shape));
  shape = with_frozen(std::move(shape), config.shape, std::move(frozen));
  config.frozen = std::move(shape.frozen);
  config.pipeline = std::move(shape.pipeline);
}

std::string trainable_text(const RunConfig& config) {
  const bool has_adapter = config.adapter.shape.kind != AdapterKind::none;
  if (config.frozen.empty() && !has_adapter) return {};
  RunShape shape;
  shape.frozen = config.frozen;
  shape.adapters = config.adapter.shape;
  const ParameterTable table = gpt2_parameters(config.shape, {}, shape);
  const auto learning = std::ranges::count_if(table.specs(), &ParameterSpec::trainable);
  const std::int64_t trained = table.trainable_count(), all = table.count();
  const double percent = 100 * static_cast<double>(trained) / static_cast<double>(all);
  return "training " + std::to_string(trained) + " of " + std::to_string(all) + " parameters (" +
         number_text("%.3g", percent) + "%), in " + std::to_string(learning) + " of " +
         std::to_string(table.specs().size()) + " tensors";
}

}  // namespace llmc
