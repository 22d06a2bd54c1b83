// The source of a run's training and evaluation data. It exists before the model's sizes are known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/config/model_config.h"
#include "llmc/config/model_name.h"
#include "llmc/config/resolve.h"
#include "llmc/config/train_table.h"
#include "llmc/device/target.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/run_tokenizer.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

class DataSource {
 public:
  virtual ~DataSource() = default;

  // Valid only before load(), which moves the tokenizer into its result.
  virtual const Tokenizer& tokenizer() const = 0;
  // Sizes of a model without --model and weights. The caller sets the vocabulary from tokenizer().
  virtual ModelConfig default_shape() const = 0;
  // Defaults that are specific to this kind of run.
  virtual Request preset() const = 0;
  // Whether the default batch on a GPU is as large as its memory allows.
  virtual bool fills_memory() const = 0;
  // Returns the data, cut into windows. They include training text only if `training` is true.
  virtual RunData load(const InputConfig& config, bool training) = 0;
};

// Texts and token files: --train, --val, --eval.
class TextSource final : public DataSource {
 public:
  // `request`: flags that are typed or recorded. `typed_tokenizer`: --tokenizer if it is typed.
  // `default_shape`: the sizes of a model if neither flags nor weights define them.
  TextSource(const Request& request, const std::optional<std::string>& typed_tokenizer,
             const ModelConfig& default_shape, const std::optional<StartingWeights>& weights)
      : default_shape_(default_shape) {
    if (!names_training_data(request) && requests_training(request, {})) {
      fail_usage(std::string(request.data.val ? "--val" : "--eval") + " without --train",
                 "give --train FILE, or --steps 0 to evaluate only");
    }
    if (weights) known_labels_ = weights->label_names;
    tokenizer_ = make_run_tokenizer(request, typed_tokenizer, weights);
  }

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  ModelConfig default_shape() const override { return default_shape_; }
  Request preset() const override { return {}; }
  bool fills_memory() const override { return true; }
  RunData load(const InputConfig& config, bool training) override {
    RunData data = load_run_data(config, training, std::move(tokenizer_), known_labels_);
    describe_data(data, config);
    return data;
  }

 private:
  ModelConfig default_shape_;
  std::vector<std::string> known_labels_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The text of a run that is only planned (--dry-run, --plan): no file is read.
class UnreadText final : public DataSource {
 public:
  UnreadText(const Request& request, const ModelConfig& default_shape,
             const std::optional<StartingWeights>& weights)
      : default_shape_(default_shape),
        tokenizer_(make_run_tokenizer(request, request.data.tokenizer, weights)) {}

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  ModelConfig default_shape() const override { return default_shape_; }
  Request preset() const override { return {}; }
  bool fills_memory() const override { return true; }
  RunData load(const InputConfig&, bool) override { fail("a dry run reads no text"); }

 private:
  ModelConfig default_shape_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The default model for a text without --model: GPT-2 small on a GPU; on a CPU, a model small
// enough to train there.
inline ModelConfig default_text_shape() {
  return kCudaTarget ? ModelConfig{}
                     : ModelConfig{.context = 128, .layers = 4, .heads = 4, .channels = 128};
}

// Throws if flags that are typed have no effect on the toy language.
inline void require_toy_flags(const Request& typed) {
  const std::string hint = "give --train FILE; or, with --steps 0, --val FILE or --eval TASK:FILE";
  if (typed.model.init_from) {
    fail_usage(
        "--init-from " + *typed.model.init_from + ": there is no text to train on or to evaluate",
        hint);
  }
  const auto refuse = [&](const std::string& flag) {
    fail_usage(
        flag + " has no effect without --train: the toy language has words and sizes of its own",
        hint);
  };
  if (typed.data.tokenizer) refuse("--tokenizer " + *typed.data.tokenizer);
  if (typed.model.name) {
    config_from_name(*typed.model.name);  // an unknown name is the first thing to know
    refuse("--model " + *typed.model.name);
  }
  if (typed.data.vocab_size) refuse("--vocab-size");
  if (typed.task.kind.value_or(Task::lm) != Task::lm) {
    fail_usage(std::string("--task ") + choice_name(*typed.task.kind) + " needs data",
               "give --train FILE.jsonl, or --classes LABEL=FILE,LABEL=FILE");
  }
}

// Texts if the flags name data, else the toy language. --eval alone scores texts by a model that
// learns the toy language; with --steps 0 or weights it evaluates that model. `known`: flags that
// are typed or recorded. Toy: the source of the toy language.
template <class Toy>
std::unique_ptr<DataSource> choose_source(const Request& typed, const Request& known,
                                          const std::optional<StartingWeights>& weights) {
  const bool has_model = typed.model.init_from || !requests_training(known, {});
  const bool has_data = names_training_data(known) || known.data.val;
  if (has_data || (known.evaluation.tasks && has_model)) {
    return std::make_unique<TextSource>(known, typed.data.tokenizer, default_text_shape(), weights);
  }
  const bool has_size = typed.model.name || typed.data.vocab_size || typed.data.tokenizer;
  const bool plans = typed.ranks.dry_run.value_or(false) || typed.ranks.plan.value_or(false);
  if (plans && (has_size || has_model)) {
    return std::make_unique<UnreadText>(known, default_text_shape(), weights);
  }
  require_toy_flags(typed);
  return std::make_unique<Toy>();
}

}  // namespace llmc
