// The source of a run's training and evaluation data. It exists before the model's sizes are known.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "llmc/config/train_table.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/train/run/resolve.h"
#include "llmc/train/run/run_data.h"

namespace llmc {

class DataSource {
 public:
  virtual ~DataSource() = default;

  // Valid only before load(), which moves the tokenizer into its result.
  virtual const Tokenizer& tokenizer() const = 0;
  // Sizes of a model without --model and --init-from. The caller sets the vocabulary from
  // tokenizer().
  virtual Gpt2Config default_shape() const = 0;
  // Defaults that are specific to this kind of run.
  virtual Request preset() const = 0;
  // Returns the data, cut into windows. They include training text only if `training` is true.
  virtual RunData load(const InputConfig& config, bool training) = 0;
};

// Texts and token files: --train, --val, --eval.
class TextSource final : public DataSource {
 public:
  // `default_shape`: the sizes of a model if neither flags nor weights define them.
  TextSource(const Request& request, const Gpt2Config& default_shape)
      : default_shape_(default_shape) {
    if (!request.data.train && requests_training(request, {})) {
      fail(std::string(request.data.val ? "--val" : "--eval") + " without --train",
           "give --train FILE, or --steps 0 to evaluate only");
    }
    const InputConfig defaults = default_run_config();
    tokenizer_ = make_tokenizer(request.data.tokenizer.value_or(defaults.data.tokenizer));
  }

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  Gpt2Config default_shape() const override { return default_shape_; }
  Request preset() const override { return {}; }
  RunData load(const InputConfig& config, bool training) override {
    RunData data = load_run_data(config, training, std::move(tokenizer_));
    describe_data(data);
    return data;
  }

 private:
  Gpt2Config default_shape_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace llmc
