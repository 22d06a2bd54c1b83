// Runs the completions of a job and passes their texts on: text by text as it is certain, and each
// completion, in the order of prompts and then samples, when it is complete.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/infer/batch_generator.h"
#include "llmc/infer/completion.h"
#include "llmc/infer/job.h"
#include "llmc/infer/stop_text.h"
#include "llmc/infer/text_stream.h"

namespace llmc {

// Functions that a run of completions calls.
struct CompletionCallbacks {
  // More text of a completion, which is never part of a stop string or of a character.
  std::function<void(std::int64_t completion, const std::string& text)> on_text;
  std::function<void(const Completion&)> on_completion;  // in order
  std::function<bool()> on_step;                         // false: end now, with the text so far
};

// Totals of a run.
struct CompletionTotals {
  std::int64_t completions = 0, failed = 0, prompt_tokens = 0, tokens = 0;
  std::int64_t not_finite = 0;  // of the failed ones: the model's output was not finite
  double seconds = 0;
};

class CompletionRun {
 public:
  // Both must outlive the run.
  CompletionRun(const Job& job, const CompletionCallbacks& callbacks)
      : job_(job), callbacks_(callbacks), order_(num_completions(job)) {}

  CompletionTotals run(BatchGenerator& generator) {
    const Clock::time_point start = Clock::now();
    generator_ = &generator;
    generator.run(
        {.next = [this] { return next(); },
         .on_token =
             [this](std::int64_t sequence, std::int32_t token, float log_probability) {
               return on_token(sequence, token, log_probability);
             },
         .on_finish = [this](std::int64_t sequence, Finish finish) { on_finish(sequence, finish); },
         .on_step = callbacks_.on_step});
    totals_.seconds = seconds_between(start, Clock::now());
    return totals_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // A completion in the making.
  struct Draft {
    std::int64_t index;
    Completion completion;
    TextStream characters;
    StopText text;
    Clock::time_point start, first_token{}, last_token{};
  };

  static double seconds_between(Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
  }

  // Completions of each prompt. One with an error has one completion, which reports it.
  static std::vector<std::int64_t> num_completions(const Job& job) {
    std::vector<std::int64_t> counts;
    for (const JobPrompt& prompt : job.prompts) {
      counts.push_back(prompt.entry.error.empty() ? job.samples : 1);
    }
    return counts;
  }

  // The next sequence; prompts with an error are completed here.
  std::optional<SequenceRequest> next() {
    while (next_ < job_.completions()) {
      const JobPrompt& prompt = job_.prompts[static_cast<std::size_t>(next_ / job_.samples)];
      Completion completion;
      completion.id = prompt.entry.id;
      completion.prompt = prompt.entry.prompt;
      completion.sample = next_ % job_.samples;
      completion.prompt_tokens = std::ssize(prompt.tokens);
      completion.seed = job_.seed_of(prompt);
      completion.error = prompt.entry.error;
      if (!completion.error.empty()) {
        complete(next_, std::move(completion));
        next_ += job_.samples;
        continue;
      }
      std::vector<std::string> stops = job_.stop;
      stops.insert(stops.end(), prompt.entry.stop.begin(), prompt.entry.stop.end());
      drafts_.emplace(num_sequences_++, Draft{next_, std::move(completion),
                                              TextStream(*job_.tokenizer, prompt.tokens.back()),
                                              StopText(std::move(stops)), Clock::now()});
      return job_.request(next_++);
    }
    return std::nullopt;
  }

  bool on_token(std::int64_t sequence, std::int32_t token, float log_probability) {
    Draft& draft = drafts_.at(sequence);
    draft.last_token = Clock::now();
    if (draft.completion.ids.empty()) draft.first_token = draft.last_token;
    draft.completion.ids.push_back(token);
    draft.completion.logprobs.push_back(log_probability);
    add_text(draft, draft.text.push(draft.characters.push(token)));
    return !draft.text.stopped();
  }

  void add_text(Draft& draft, const std::string& text) {
    if (text.empty()) return;
    draft.completion.text += text;
    callbacks_.on_text(draft.index, text);
  }

  void on_finish(std::int64_t sequence, Finish finish) {
    Draft& draft = drafts_.at(sequence);
    if (!draft.text.stopped()) {
      add_text(draft, draft.text.push(draft.characters.finish()));
      add_text(draft, draft.text.finish());
    }
    Completion& completion = draft.completion;
    completion.finish = draft.text.stopped() ? Finish::stop : finish;
    if (completion.finish == Finish::not_finite) {
      completion.error = "the model's output is not finite after " +
                         std::to_string(completion.ids.size()) + " generated tokens";
      if (!generator_->fault().empty()) completion.error += ": " + generator_->fault();
    }
    if (completion.ids.empty()) draft.first_token = draft.last_token = Clock::now();
    completion.prompt_ms = 1e3 * seconds_between(draft.start, draft.first_token);
    completion.generate_ms = 1e3 * seconds_between(draft.first_token, draft.last_token);
    const std::int64_t index = draft.index;
    Completion done = std::move(completion);
    drafts_.erase(sequence);
    complete(index, std::move(done));
  }

  void complete(std::int64_t index, Completion completion) {
    ++totals_.completions;
    totals_.failed += completion.error.empty() ? 0 : 1;
    totals_.not_finite += completion.finish == Finish::not_finite ? 1 : 0;
    totals_.prompt_tokens += completion.prompt_tokens;
    totals_.tokens += std::ssize(completion.ids);
    for (const Completion& next : order_.add(index / job_.samples, std::move(completion))) {
      callbacks_.on_completion(next);
    }
  }

  const Job& job_;
  const CompletionCallbacks& callbacks_;
  const BatchGenerator* generator_ = nullptr;
  std::int64_t next_ = 0, num_sequences_ = 0;
  std::map<std::int64_t, Draft> drafts_;  // by the number of the sequence
  CompletionOrder order_;
  CompletionTotals totals_;
};

}  // namespace llmc
