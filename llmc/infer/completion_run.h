// Runs the completions of a job and passes their texts on: text by text as it is certain, and each
// completion, in the order of prompts and then samples, when it is complete.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "llmc/infer/completion.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/infer/job.h"
#include "llmc/infer/prompt.h"
#include "llmc/infer/scheduler.h"
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

  CompletionTotals run(Scheduler& scheduler);

 private:
  using Clock = std::chrono::steady_clock;

  // A completion in the making.
  struct PartialCompletion {
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
  static std::vector<std::int64_t> num_completions(const Job& job);

  // The next sequence; prompts with an error are completed here.
  std::optional<GenerationRequest> next();

  bool on_token(std::int64_t sequence, std::int32_t token, float log_probability);

  void add_text(PartialCompletion& partial, const std::string& text);

  void on_finish(std::int64_t sequence, Finish finish);

  void complete(std::int64_t index, Completion completion);

  const Job& job_;
  const CompletionCallbacks& callbacks_;
  const Scheduler* scheduler_ = nullptr;
  std::int64_t next_ = 0, num_sequences_ = 0;
  std::map<std::int64_t, PartialCompletion> partial_;  // by the number of the sequence
  CompletionOrder order_;
  CompletionTotals totals_;
};

}  // namespace llmc
