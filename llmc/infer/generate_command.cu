#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/signal_thread.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/model_config.h"
#include "llmc/infer/completion.h"
#include "llmc/infer/completion_run.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/infer/generate_command.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/scheduler.h"

namespace llmc {

namespace {

// A model in memory that generates texts.
class TextEngine {
 public:
  TextEngine(const InferConfig& settings, const ModelConfig& config, const BatchShape& shape,
             const SchedulerOptions& options)
      : runner_(make_decoding_runner(settings, config)),
        pass_(make_pass(settings, *runner_, shape)),
        scheduler_(*pass_, options, runner_->memory()) {
    load_model(*runner_, settings);
  }

  Scheduler& scheduler() { return scheduler_; }

 private:
  std::unique_ptr<GenerationRunner> runner_;
  std::unique_ptr<GenerationPass> pass_;
  Scheduler scheduler_;
};

// Prints texts and completions as the flags request.
class CompletionPrinter {
 public:
  CompletionPrinter(const InferConfig& settings, const Job& job)
      : settings_(settings),
        single_(job.completions() == 1),
        has_separators_(!single_ && !Notice::quiet() && stdout_is_stderr()) {
    if (streams() && settings.display_prompt) print(job.prompts[0].entry.prompt);
  }

  void text(const std::string& text) {
    if (streams()) print(text);
  }

  void completion(const Completion& completion) {
    const bool is_reported_later = completion.finish == Finish::not_finite;
    if (!completion.error.empty() && !settings_.jsonl && !is_reported_later) {
      Notice::warn(completion.error);
    }
    if (settings_.jsonl) {
      print_text(completion_jsonl(completion) + "\n");
    } else if (settings_.json) {
      print_text(completion_json(completion) + "\n");
    } else if (!streams() && completion.error.empty()) {
      if (has_separators_) Notice::print(separator(completion));
      const std::string prompt = settings_.display_prompt ? completion.prompt : "";
      print(prompt + completion.text + (single_ ? "" : "\n"));
    }
  }

  // Ends the line of the text. A terminal's next prompt begins on a line of its own, and so do the
  // statistics, by a line break on stderr that does not change the bytes of stdout.
  void finish() {
    if (settings_.json || settings_.jsonl || !single_) return;
    if (isatty(STDOUT_FILENO) != 0) return print_text("\n");
    if (!ends_line_ && stdout_is_stderr()) Notice::print("");
  }

 private:
  // The table of flags allows it only for one completion as text.
  bool streams() const { return settings_.stream; }

  // "--- prompt 3, sample 2 ---", on stderr. Samples count from 0, as in the key of --jsonl.
  std::string separator(const Completion& completion) const {
    const std::string sample = "sample " + std::to_string(completion.sample);
    return "--- " + (settings_.prompts.empty() ? "" : "prompt " + completion.id + ", ") + sample +
           " ---";
  }

  void print(const std::string& text) {
    if (!text.empty()) ends_line_ = text.back() == '\n';
    print_text(text);
  }

  const InferConfig& settings_;
  bool single_;
  bool has_separators_;    // a person reads texts and messages together
  bool ends_line_ = true;  // the text so far is empty, or ends in a line break
};

void print_single_summary(const Completion& c, std::uint64_t seed) {
  Notice::print("prompt: " + std::to_string(c.prompt_tokens) +
                number_text(" tokens, first token after %.1f ms", c.prompt_ms));
  const auto later_tokens = static_cast<double>(c.ids.size()) - 1;
  const double speed = later_tokens > 0 ? 1e3 * later_tokens / c.generate_ms : 0;
  Notice::print("generated: " + std::to_string(c.ids.size()) + " tokens (" + finish_name(c.finish) +
                number_text("), %.1f tok/s after the first", speed) + ", seed " +
                std::to_string(seed));
}

void print_summary(const CompletionTotals& totals, std::int64_t slots, std::uint64_t seed) {
  Notice::print("completions: " + std::to_string(totals.completions) + " (" +
                std::to_string(totals.failed) + " with an error), " +
                std::to_string(totals.prompt_tokens) + " prompt tokens, " +
                std::to_string(totals.tokens) + " generated, batch " + std::to_string(slots) +
                number_text(", %.1f s", totals.seconds) +
                number_text(", %.1f tok/s", static_cast<double>(totals.tokens) / totals.seconds) +
                ", seed " + std::to_string(seed));
}

// Reads a line of stdin; false at its end. The terminal stops a program in the background that
// reads, by SIGTTIN. If the signal were blocked, the read would fail.
bool read_line(std::string& line) {
  const UnblockedSignal unblocked(SIGTTIN);
  return static_cast<bool>(std::getline(std::cin, line));
}

// Throws if completions have an error: the model's output was not finite, or a line of --prompts is
// no prompt. `reasons`: where the output states the error of a line.
void require_complete(const CompletionTotals& totals, const std::string& reasons) {
  if (totals.failed == 0) return;
  const std::string of_all = " of " + std::to_string(totals.completions) + " completions";
  const std::int64_t others = totals.failed - totals.not_finite;
  if (totals.not_finite == 0) {
    fail(std::to_string(others) + of_all + (others == 1 ? " has" : " have") + " an error",
         "correct these prompts; " + reasons);
  }
  fail("the model's output is not finite in " + std::to_string(totals.not_finite) + of_all +
           (others > 0 ? ", and " + std::to_string(others) + " with another error" : ""),
       "check whether the weights are damaged or too large for this " + quantity("dtype"));
}

}  // namespace

void generate_texts(const InferConfig& settings, const Job& job) {
  TextEngine engine(settings, job.config, job.shape, job.options);
  const SignalRequest request;
  CompletionPrinter printer(settings, job);
  Completion last;
  const CompletionCallbacks callbacks = {
      .on_text = [&](std::int64_t, const std::string& text) { printer.text(text); },
      .on_completion =
          [&](const Completion& completion) {
            printer.completion(completion);
            last = completion;
          },
      .on_step = [] { return !SignalRequest::requested(); }};
  CompletionRun run(job, callbacks);
  const CompletionTotals totals = run.run(engine.scheduler());
  printer.finish();
  if (job.completions() == 1 && last.error.empty()) return print_single_summary(last, last.seed);
  print_summary(totals, job.shape.slots, job.seed);
  require_complete(totals, settings.jsonl ? "the key \"error\" of each has the reason"
                                          : "the messages above have the reasons");
}

void interact(const InferConfig& settings, Job job) {
  const std::int64_t context = job.config.context;
  job.shape = {
      .slots = 1, .capacity = context, .chunk = std::min<std::int64_t>(settings.chunk, context)};
  TextEngine engine(settings, job.config, job.shape, job.options);
  Notice::print("type a text and press Enter; an empty line or Ctrl-D ends");
  SignalRequest::set_work("");
  // Without a prompt, the job's is <|endoftext|> alone, which the first line replaces.
  std::vector<std::int32_t> history;
  if (!job.prompts[0].entry.prompt.empty()) history = job.prompts[0].tokens;
  for (std::string line; read_line(line) && !line.empty();) {
    // A signal ends a text, and between texts the program.
    const SignalRequest request(SignalRequest::AfterRequest::restore);
    JobPrompt& prompt = job.prompts[0];
    prompt.entry.prompt = line;
    const std::vector<std::int32_t> ids = job.tokenizer->encode(line);
    history.insert(history.end(), ids.begin(), ids.end());
    if (history.empty()) continue;
    const std::int64_t surplus = std::ssize(history) - std::max<std::int64_t>(1, context - 1);
    if (surplus > 0)
      history.erase(history.begin(), history.end() - std::max<std::int64_t>(1, context / 2));
    prompt.tokens = history;
    const CompletionCallbacks callbacks = {
        .on_text = [](std::int64_t, const std::string& text) { print_text(text); },
        .on_completion =
            [&](const Completion& completion) {
              history.insert(history.end(), completion.ids.begin(), completion.ids.end());
            },
        .on_step = [] { return !SignalRequest::requested(); }};
    CompletionRun run(job, callbacks);
    const CompletionTotals totals = run.run(engine.scheduler());
    print_text("\n");
    require_complete(totals, {});
  }
}

}  // namespace llmc
