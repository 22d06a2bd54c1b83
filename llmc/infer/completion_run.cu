#include <cstddef>
#include <iterator>
#include <utility>

#include "llmc/infer/completion_run.h"

namespace llmc {

CompletionTotals CompletionRun::run(Scheduler& scheduler) {
  const Clock::time_point start = Clock::now();
  scheduler_ = &scheduler;
  scheduler.run(
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

std::vector<std::int64_t> CompletionRun::num_completions(const Job& job) {
  std::vector<std::int64_t> counts;
  for (const JobPrompt& prompt : job.prompts) {
    counts.push_back(prompt.entry.error.empty() ? job.samples : 1);
  }
  return counts;
}

std::optional<GenerationRequest> CompletionRun::next() {
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
    partial_.emplace(num_sequences_++,
                     PartialCompletion{next_, std::move(completion),
                                       TextStream(*job_.tokenizer, prompt.tokens.back()),
                                       StopText(std::move(stops)), Clock::now()});
    return job_.request(next_++);
  }
  return std::nullopt;
}

bool CompletionRun::on_token(std::int64_t sequence, std::int32_t token, float log_probability) {
  PartialCompletion& partial = partial_.at(sequence);
  partial.last_token = Clock::now();
  if (partial.completion.ids.empty()) partial.first_token = partial.last_token;
  partial.completion.ids.push_back(token);
  partial.completion.logprobs.push_back(log_probability);
  add_text(partial, partial.text.push(partial.characters.push(token)));
  return !partial.text.stopped();
}

void CompletionRun::add_text(PartialCompletion& partial, const std::string& text) {
  if (text.empty()) return;
  partial.completion.text += text;
  callbacks_.on_text(partial.index, text);
}

void CompletionRun::on_finish(std::int64_t sequence, Finish finish) {
  PartialCompletion& partial = partial_.at(sequence);
  if (!partial.text.stopped()) {
    add_text(partial, partial.text.push(partial.characters.finish()));
    add_text(partial, partial.text.finish());
  }
  Completion& completion = partial.completion;
  completion.finish = partial.text.stopped() ? Finish::stop : finish;
  if (completion.finish == Finish::not_finite) {
    completion.error = "the model's output is not finite after " +
                       std::to_string(completion.ids.size()) + " generated tokens";
    if (!scheduler_->fault().empty()) completion.error += ": " + scheduler_->fault();
  }
  if (completion.ids.empty()) partial.first_token = partial.last_token = Clock::now();
  completion.prompt_ms = 1e3 * seconds_between(partial.start, partial.first_token);
  completion.generate_ms = 1e3 * seconds_between(partial.first_token, partial.last_token);
  const std::int64_t index = partial.index;
  Completion done = std::move(completion);
  partial_.erase(sequence);
  complete(index, std::move(done));
}

void CompletionRun::complete(std::int64_t index, Completion completion) {
  ++totals_.completions;
  totals_.failed += completion.error.empty() ? 0 : 1;
  totals_.not_finite += completion.finish == Finish::not_finite ? 1 : 0;
  totals_.prompt_tokens += completion.prompt_tokens;
  totals_.tokens += std::ssize(completion.ids);
  for (const Completion& next : order_.add(index / job_.samples, std::move(completion))) {
    callbacks_.on_completion(next);
  }
}

}  // namespace llmc
