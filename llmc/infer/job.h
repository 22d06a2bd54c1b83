// A generation with everything decided and checked: the settings, the model's config and the
// tokenizer put together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/infer/decoder.h"
#include "llmc/infer/generate.h"
#include "llmc/infer/prompt.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/file.h"
#include "llmc/io/options/infer_settings.h"
#include "llmc/model/pretrained.h"

namespace llmc {

struct Job {
  Gpt2Config config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> prompt;
  GenerationOptions options;

  // The cache needs no place for the last token: nothing follows it.
  DecoderShape shape() const {
    const auto length = static_cast<std::int64_t>(prompt.size());
    const std::int64_t room = config.context - length;
    return {.B = 1, .prompt = length, .capacity = length + std::min(options.tokens, room) - 1};
  }
};

// A run's --out directory holds checkpoints, and is none itself.
inline void check_model_directory(const std::string& model) {
  if (is_llmc_model_file(model)) return;
  std::error_code ignored;
  if (!std::filesystem::is_directory(model, ignored)) {
    const bool file = std::filesystem::exists(model, ignored);
    fail("--model " + model +
             (file ? " is not a directory, and does not end in .bin"
                   : ": there is no such directory"),
         "a directory that transformers saved, a checkpoint of train_gpt2, or a model file of "
         "llm.c (.bin)");
  }
  if (std::filesystem::exists(std::filesystem::path(model) / kConfigName, ignored)) return;
  std::string newest;
  for (const auto& path : directories_in(model)) {
    if (path.filename().string().starts_with("step_")) newest = path.string();
  }
  fail("--model " + model + ": there is no " + kConfigName + " in it",
       newest.empty() ? "a directory that transformers saved, or a checkpoint of train_gpt2"
                      : "it holds checkpoints: --model " + newest);
}

// Reads the config, the tokenizer and the prompt. Throws an Error that names the flag or the file.
inline Job make_job(const InferSettings& settings) {
  check_model_directory(settings.model);
  const HuggingFaceConfig config = read_pretrained_config(settings.model);
  Job job;
  job.config = from_huggingface(config, settings.model);
  job.tokenizer = choose_tokenizer(settings, job.config.vocabulary);
  check_vocabulary(settings, *job.tokenizer, job.config.vocabulary);
  const std::optional<std::int32_t> end = end_of_text(config, *job.tokenizer);
  job.prompt =
      prompt_tokens(prompt_text(settings, std::cin), *job.tokenizer, end, job.config.context);
  job.options = {.tokens = settings.tokens,
                 .sampling = {.temperature = settings.temperature, .top_k = settings.top_k},
                 .seed = settings.seed,
                 .stop = settings.ignore_eos ? std::nullopt : end};
  return job;
}

}  // namespace llmc
