#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/config/infer_values.h"
#include "llmc/device/device.h"
#include "llmc/infer/job.h"
#include "llmc/infer/prompt.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

std::int64_t Job::completions() const {
  return std::ssize(prompts) * samples;
}

GenerationRequest Job::request(std::int64_t completion) const {
  const JobPrompt& prompt = prompts[static_cast<std::size_t>(completion / samples)];
  return {.prompt = prompt.tokens,
          .tokens = prompt.max_new_tokens,
          .seed = seed_of(prompt),
          .sample = static_cast<std::uint32_t>(completion % samples)};
}

namespace {

SamplingOptions sampling_options(const InferConfig& settings) {
  SamplingOptions options;
  options.temperature = settings.temperature;
  options.top_k = settings.top_k;
  options.top_p = settings.top_p;
  options.min_p = settings.min_p;
  options.typical = settings.typical;
  options.repeat_penalty = settings.repeat_penalty;
  options.repeat_last_n = settings.repeat_last_n;
  options.presence_penalty = settings.presence_penalty;
  options.frequency_penalty = settings.frequency_penalty;
  options.logit_bias = parse_logit_biases(settings.logit_bias);
  return options;
}

// Throws if --logit-bias names a token that the model does not have, or bans all tokens.
void check_logit_biases(const std::vector<std::pair<std::int32_t, double>>& biases,
                        std::int64_t vocabulary) {
  std::int64_t num_banned = 0;
  for (const auto& [token, value] : biases) {
    if (token >= vocabulary) {
      fail_usage("--logit-bias names token " + std::to_string(token) + ", the tokenizer has " +
                     std::to_string(vocabulary) + " tokens",
                 "use a token from 0 to " + std::to_string(vocabulary - 1));
    }
    if (std::isinf(value)) ++num_banned;
  }
  if (num_banned < vocabulary) return;
  fail_usage("--logit-bias bans all " + std::to_string(vocabulary) + " tokens of the model",
             "leave at least one token without -inf");
}

// The tokens of the prompts of a job.
class PromptEncoder {
 public:
  PromptEncoder(const InferConfig& settings, const Tokenizer& tokenizer,
                std::optional<std::int32_t> end, std::int64_t context)
      : tokenizer_(tokenizer),
        end_(end),
        context_(context),
        slides_(settings.slide && context > 1) {}

  // With --slide, a prompt that does not fit the context loses its oldest tokens.
  std::vector<std::int32_t> encode(const std::string& text, const std::string& source) {
    constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max();
    auto tokens = prompt_tokens(text, tokenizer_, end_, slides_ ? kNoLimit : context_, source);
    if (!slides_) return tokens;
    const std::int64_t size = std::ssize(tokens);
    const std::int64_t dropped = drop_oldest_tokens(tokens, context_);
    if (dropped > 0 && num_cut_++ == 0) {
      first_cut_ = source + " has " + std::to_string(size) +
                   " tokens, of which --slide drops the " + std::to_string(dropped) + " oldest";
    }
    return tokens;
  }

  // Prints one notice if prompts lost tokens.
  void print_notice() const {
    if (num_cut_ == 0) return;
    std::string text = first_cut_ + ": the context is " + std::to_string(context_);
    if (num_cut_ > 1) text += "; " + std::to_string(num_cut_) + " prompts are cut so";
    Notice::print(text);
  }

 private:
  const Tokenizer& tokenizer_;
  std::optional<std::int32_t> end_;
  std::int64_t context_;
  bool slides_;
  std::int64_t num_cut_ = 0;
  std::string first_cut_;
};

// The prompts of --prompts. An error in one of them does not affect the others.
std::vector<JobPrompt> listed_prompts(const InferConfig& settings, PromptEncoder& encoder) {
  std::vector<JobPrompt> prompts;
  for (PromptEntry& entry : read_prompt_list(settings.prompts)) {
    JobPrompt prompt{.entry = std::move(entry)};
    try {
      if (prompt.entry.error.empty()) {
        prompt.tokens = encoder.encode(prompt.entry.prompt, prompt.entry.location);
      }
    } catch (const Error& error) {
      prompt.entry.error = error.what();
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

JobPrompt single_prompt(const InferConfig& settings, PromptEncoder& encoder) {
  JobPrompt prompt;
  const bool from_file = !settings.file.empty();
  prompt.entry.id = "1";
  prompt.entry.prompt = from_file ? read_file(settings.file) : prompt_text(settings, std::cin);
  prompt.tokens =
      encoder.encode(prompt.entry.prompt, from_file ? "--file " + settings.file : "--prompt");
  return prompt;
}

// Steps between reads of tokens. Streams and stop strings need every token at once. Otherwise the
// host waits rarely, because a GPU idles during the wait. With a stop token this is a trade: a text
// of n tokens loses (K - 1) / 2 steps at its end and saves n - n / K waits. If a wait costs a tenth
// of a step (an estimate), K = 8 is the best for n = 320. On the host target a wait costs nothing.
std::int64_t steps_between_reads(const Job& job, bool streams) {
  bool has_stop_text = !job.stop.empty();
  for (const JobPrompt& prompt : job.prompts) {
    has_stop_text = has_stop_text || !prompt.entry.stop.empty();
  }
  if (streams || has_stop_text) return 1;
  if (!job.options.stop.empty()) return kCudaTarget ? 8 : 1;
  return 32;
}

// The smallest shape in which all completions fit.
BatchShape batch_shape(const Job& job, const InferConfig& settings) {
  std::int64_t longest_prompt = 1, capacity = 1, count = 0;
  for (const JobPrompt& prompt : job.prompts) {
    if (prompt.tokens.empty()) continue;
    const std::int64_t length = std::ssize(prompt.tokens);
    longest_prompt = std::max(longest_prompt, length);
    // The last token needs no entry in the cache, because no token follows it.
    capacity = std::max(capacity, std::min(length + prompt.max_new_tokens, job.config.context) - 1);
    count += job.samples;
  }
  if (settings.slide) capacity = longest_prompt = job.config.context;
  const std::int64_t slots = std::clamp<std::int64_t>(count, 1, settings.batch);
  return {.slots = slots,
          .capacity = capacity,
          .chunk = std::min(settings.chunk, slots * longest_prompt)};
}

}  // namespace

Job make_job(const InferConfig& settings) {
  ModelFiles files = read_model_files(settings);
  Job job;
  job.config = files.config;
  job.tokenizer = std::move(files.tokenizer);
  PromptEncoder encoder(settings, *job.tokenizer, files.end_of_text(), job.config.context);
  if (settings.prompts.empty()) {
    job.prompts = {single_prompt(settings, encoder)};
  } else {
    job.prompts = listed_prompts(settings, encoder);
  }
  encoder.print_notice();
  // More tokens than this are the same as this many, and sums with them do not overflow.
  constexpr std::int64_t kMaxNewTokens = std::int64_t{1} << 40;
  for (JobPrompt& prompt : job.prompts) {
    prompt.max_new_tokens = std::min(prompt.entry.tokens.value_or(settings.tokens), kMaxNewTokens);
  }
  job.options = {.sampling = sampling_options(settings),
                 .vocabulary = job.tokenizer->vocabulary_size(),
                 .slide = settings.slide};
  if (!settings.ignore_eos) job.options.stop = files.end_tokens;
  check_logit_biases(job.options.sampling.logit_bias, job.tokenizer->vocabulary_size());
  job.samples = settings.samples;
  job.seed = static_cast<std::uint64_t>(settings.seed);
  job.stop = settings.stop;
  job.options.steps_between_reads = steps_between_reads(job, settings.stream);
  job.shape = batch_shape(job, settings);
  return job;
}

}  // namespace llmc
