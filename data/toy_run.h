// What a training run without --train does: a small model learns the toy language.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "data/toy_language.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "llmc/train/run/run_data.h"

namespace llmc::toy {

inline constexpr std::int64_t kTrainTokens = 2'000'000, kValidationTokens = 40'000;

// Fills what nobody asked for with values that learn the language in a few minutes on two cores.
inline void set_defaults(TrainSettings& settings) {
  const auto set = [](auto& value, auto unset, auto wanted) {
    if (value == unset) value = wanted;
  };
  const std::int64_t none = 0;
  const double unsaid = -1;
  if (settings.model.empty()) {
    set(settings.layers, none, 2);
    set(settings.heads, none, 4);
    set(settings.channels, none, 64);
    set(settings.context, none, 64);
  }
  set(settings.batch_size, none, 16);
  set(settings.steps, std::int64_t{-1}, 2000);
  set(settings.lr, unsaid, 5e-3);
  set(settings.final_lr, unsaid, 0.0);
  set(settings.weight_decay, unsaid, 0.01);
  set(settings.prompt, std::string(), ".");
}

// Training and validation text come from different seeds of one language.
inline RunData make_data(const Language& language, const TrainSettings& settings,
                         const RunPlan& plan) {
  RunData data;
  data.tokenizer = std::make_unique<WordTokenizer>(language.words(), "the toy language");
  const auto text = [&](const char* name, std::uint64_t seed, std::int64_t tokens) {
    TokenSource source(name);
    source.add(name, TokenData(language.generate(seed, tokens)));
    return std::vector<TokenSource>{std::move(source)};
  };
  RunSources sources;
  sources.train = text("the toy language", 2 * settings.seed, kTrainTokens);
  sources.validation =
      text("the toy language's validation text", 2 * settings.seed + 1, kValidationTokens);
  cut_windows(data, std::move(sources), settings, plan);
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
