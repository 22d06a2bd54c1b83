// The data of a training run without --train: a small model learns the toy language.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/toy_language.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "llmc/train/run/data_source.h"
#include "llmc/train/run/eval_tasks.h"
#include "llmc/train/run/recorded_run.h"

namespace llmc::toy {

inline constexpr std::int64_t kTrainTokens = 2'000'000, kValidationTokens = 40'000;

class ToySource final : public DataSource {
 public:
  ToySource() : tokenizer_(std::make_unique<WordTokenizer>(language_.words(), kToyTextName)) {
    Notice::print("no --train: using the built-in toy language of " +
                  std::to_string(language_.words().size()) +
                  " words; the loss cannot fall below its entropy of " +
                  number_text("%.4f nats per token", language_.entropy_per_token()));
  }

  const Tokenizer& tokenizer() const override { return *tokenizer_; }

  // Sizes and defaults, chosen so that a run learns the language in a few minutes on two cores.
  ModelConfig default_shape() const override {
    return {.context = 64, .layers = 2, .heads = 4, .channels = 64};
  }
  Request preset() const override {
    Request request;
    request.batch.batch_size = 16;
    request.schedule.steps = 2000;
    request.schedule.peak = 5e-3;
    request.schedule.final_fraction = 0.0;
    request.optimizer.weight_decay = 0.01;
    request.samples.prompt = ".";
    return request;
  }

  bool fills_memory() const override { return false; }

  // Training and validation text come from different seeds of one language.
  RunData load(const InputConfig& config, bool training) override {
    RunData data;
    data.tokenizer = std::move(tokenizer_);
    data.tasks = make_eval_tasks(config.evaluation, config.data.bin_format, *data.tokenizer,
                                 config.batch.seq_len);
    RunSources sources;
    sources.train = text(kToyTextName, 2 * config.seed, kTrainTokens);
    sources.validation =
        text("the toy language's validation text", 2 * config.seed + 1, kValidationTokens);
    cut_windows(data, std::move(sources), config, training);
    return data;
  }

 private:
  std::vector<TokenSource> text(const char* name, std::uint64_t seed, std::int64_t tokens) const {
    TokenSource source(name);
    source.add(name, TokenData(language_.generate(seed, tokens)));
    return {std::move(source)};
  }

  Language language_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace llmc::toy
