// A generation job, complete and checked: the options, the model's config, the tokenizer and the
// prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/config/infer_settings.h"
#include "llmc/config/model_config.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/prompt_list.h"
#include "llmc/infer/scheduler.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// A prompt in text and tokens. One with an error has no tokens and is not continued.
struct JobPrompt {
  PromptEntry entry{};
  std::vector<std::int32_t> tokens{};
  std::int64_t max_new_tokens = 0;
};

struct Job {
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<JobPrompt> prompts;
  SchedulerOptions options;
  std::int64_t samples = 1;  // completions per prompt
  std::uint64_t seed = 0;
  std::vector<std::string> stop{};
  BatchShape shape{};

  std::int64_t completions() const;

  // The sequence of a completion; completions are numbered prompt by prompt.
  GenerationRequest request(std::int64_t completion) const;
  std::uint64_t seed_of(const JobPrompt& prompt) const {
    return prompt.entry.seed ? static_cast<std::uint64_t>(*prompt.entry.seed) : seed;
  }
};

// Reads the config, the tokenizer and the prompts. --model must be a path of find_pretrained().
// Throws an Error that names the flag or the file.
Job make_job(const InferConfig& settings);

}  // namespace llmc
