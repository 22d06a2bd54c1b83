// A generation job, complete and checked: the options, the model's config, the tokenizer and the
// prompt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/infer_settings.h"
#include "llmc/infer/decoder.h"
#include "llmc/infer/generate.h"
#include "llmc/infer/prompt.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/model/pretrained.h"

namespace llmc {

struct Job {
  Gpt2Config config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::int32_t> prompt;
  GenerationOptions options;

  // The cache needs no entry for the last token, because no token follows it.
  DecoderShape shape() const {
    const auto length = static_cast<std::int64_t>(prompt.size());
    const std::int64_t max_new_tokens = config.context - length;
    return {.B = 1,
            .prompt = length,
            .capacity = length + std::min(options.tokens, max_new_tokens) - 1};
  }
};

// Reads the config, the tokenizer and the prompt. --model must be a path of find_pretrained().
// Throws an Error that names the flag or the file.
inline Job make_job(const InferConfig& settings) {
  const HuggingFaceConfig config = read_pretrained_config(settings.model);
  Job job;
  job.config = from_huggingface(config, settings.model);
  job.tokenizer = choose_tokenizer(settings, job.config.vocabulary);
  check_vocabulary("--model " + settings.model, job.config.vocabulary, *job.tokenizer);
  const std::optional<std::int32_t> end = end_of_text(config, *job.tokenizer);
  job.prompt =
      prompt_tokens(prompt_text(settings, std::cin), *job.tokenizer, end, job.config.context);
  job.options = {.tokens = settings.tokens,
                 .sampling = {.temperature = settings.temperature, .top_k = settings.top_k},
                 .seed = static_cast<std::uint64_t>(settings.seed),
                 .stop = settings.ignore_eos ? std::nullopt : end};
  return job;
}

}  // namespace llmc
