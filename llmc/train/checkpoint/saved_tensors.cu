#include <algorithm>
#include <cstdio>
#include <map>

#include "llmc/base/json.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/train/checkpoint/saved_tensors.h"

namespace llmc {

std::string tensor_file_name(const std::string& stem, std::size_t index, std::size_t count) {
  if (count == 1) return stem + ".safetensors";
  const auto digits = [](std::size_t number) {
    const std::string text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return stem + "-" + digits(index + 1) + "-of-" + digits(count) + ".safetensors";
}

std::string weights_index_text(const SavePlan& plan) {
  const std::vector<int> writers = plan.weight_writers();
  std::map<std::string, std::string> files;
  std::int64_t bytes = 0;
  for (const SavePlan::Weight& weight : plan.weights) {
    const auto writer = std::ranges::lower_bound(writers, weight.writer) - writers.begin();
    files[huggingface_name(weight.spec->name)] =
        tensor_file_name("model", static_cast<std::size_t>(writer), writers.size());
    bytes += tensor_bytes({weight.spec->name, TensorDtype::f32, weight.spec->shape});
  }
  return Json{{"metadata", {{"total_size", bytes}}}, {"weight_map", files}}.dump(2) + "\n";
}

CheckpointState saved_counters(const std::filesystem::path& root, const RunPosition& position,
                               std::uint64_t seed, Dtype dtype, const OptimizerState& optimizer,
                               bool only_best) {
  const MeasuredLoss validation = position.validation.value_or(MeasuredLoss{.step = -1});
  CheckpointState counters = {{"samples", position.samples},
                              {"tokens", position.tokens},
                              {"seq_len", position.T},
                              {"train", position.train},
                              {"validation_step", validation.step},
                              {"validation_loss", validation.loss},
                              {"out", root.string()},
                              {"directory", std::filesystem::current_path().string()},
                              {"seed", seed},
                              {"dtype", dtype_name(dtype)},
                              {"updates", optimizer.updates},
                              {"skipped", optimizer.skipped_updates},
                              {"skipped_in_row", optimizer.consecutive_skips}};
  if (optimizer.loss_scale > 0) {
    counters["loss_scale"] = optimizer.loss_scale;
    counters["loss_scale_good_steps"] = optimizer.loss_scale_good_steps;
  }
  if (position.train_tokens >= 0) counters["train_tokens"] = position.train_tokens;
  if (!position.train_data.hashes.empty()) counters["train_xxh3"] = position.train_data.hashes;
  if (!position.validation_data.hashes.empty()) {
    counters["validation_xxh3"] = position.validation_data.hashes;
  }
  if (!position.vocabulary.empty()) counters["vocabulary_xxh64"] = position.vocabulary;
  if (validation.macro_f1) counters["validation_macro_f1"] = *validation.macro_f1;
  if (position.best) {
    counters["best_validation_step"] = position.best->step;
    counters["best_validation_loss"] = position.best->loss;
    if (position.best->macro_f1) counters["best_validation_macro_f1"] = *position.best->macro_f1;
  }
  if (only_best) counters[kOnlyBestKey] = true;
  if (!position.finite_loss) counters[kLossNotFiniteKey] = true;
  if (!position.protected_checkpoint.empty())
    counters[kProtectedKey] = position.protected_checkpoint;
  counters.insert(position.flags.begin(), position.flags.end());
  return counters;
}

}  // namespace llmc
