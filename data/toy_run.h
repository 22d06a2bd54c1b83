// What a training run without --train does: a small model learns the toy language.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "data/toy_language.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "llmc/train/run/run_data.h"

namespace llmc::toy {

inline constexpr std::int64_t kTrainTokens = 2'000'000, kValidationTokens = 40'000;

// Sizes and defaults with which a run learns the language in a few minutes on two cores.
inline Gpt2Config default_shape() {
  return {.context = 64, .layers = 2, .heads = 4, .channels = 64};
}

inline Request preset() {
  Request request;
  request.batch.batch_size = 16;
  request.schedule.steps = 2000;
  request.schedule.peak = 5e-3;
  request.schedule.final_fraction = 0.0;
  request.optimizer.weight_decay = 0.01;
  request.samples.prompt = ".";
  return request;
}

// Training and validation text come from different seeds of one language.
inline RunData make_data(const Language& language, const InputConfig& config, bool training) {
  RunData data;
  data.tokenizer = std::make_unique<WordTokenizer>(language.words(), "the toy language");
  const auto text = [&](const char* name, std::uint64_t seed, std::int64_t tokens) {
    TokenSource source(name);
    source.add(name, TokenData(language.generate(seed, tokens)));
    return std::vector<TokenSource>{std::move(source)};
  };
  RunSources sources;
  sources.train = text("the toy language", 2 * config.seed, kTrainTokens);
  sources.validation =
      text("the toy language's validation text", 2 * config.seed + 1, kValidationTokens);
  cut_windows(data, std::move(sources), config, training);
  return data;
}

inline void introduce(const Language& language) {
  std::fprintf(
      stderr,
      "no --train: a small model learns the built-in toy language of %zu words; the loss cannot "
      "fall below its entropy, %.4f nats a token\n",
      language.words().size(), language.entropy_per_token());
}

}  // namespace llmc::toy
