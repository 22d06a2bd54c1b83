#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/standard_output.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/exchange.h"
#include "llmc/config/choices.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/eval/base_log.h"
#include "llmc/eval/comparison.h"
#include "llmc/eval/log_probs.h"
#include "llmc/eval/logits_scorer.h"
#include "llmc/eval/perplexity.h"
#include "llmc/eval/quality_commands.h"
#include "llmc/eval/report.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/eval/task.h"
#include "llmc/eval/tasks.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/prompt.h"
#include "llmc/infer/prompt_runner.h"
#include "llmc/models/evaluation_pass.h"
#include "llmc/models/pretrained.h"

namespace llmc {

namespace {

// The shape of a model that is scored on windows of T tokens, one at a time.
RunShape window_shape(std::int64_t T) {
  return {.B = 1, .T = T, .training = false};
}

std::int64_t window_of(const InferConfig& settings, const ModelConfig& config) {
  if (settings.seq_len > config.context) {
    fail_usage("--seq-len " + std::to_string(settings.seq_len) + " exceeds the context of " +
                   std::to_string(config.context),
               "use at most the context");
  }
  return settings.seq_len > 0 ? settings.seq_len : config.context;
}

EvalOptions eval_options(const InferConfig& settings, std::int64_t T) {
  const std::int64_t stride = settings.stride > 0 ? settings.stride : (T + 1) / 2;
  if (stride > T) {
    fail_usage("--stride " + std::to_string(stride) + " is more than the window of " +
                   std::to_string(T) + " tokens",
               "use at most --seq-len, so that no token is skipped");
  }
  return {.limit = settings.limit,
          .stride = stride,
          .bin_format = settings.bin_format,
          .standard_errors = true,
          .source_name = settings.command.front()};
}

// Shows the fraction of a task that is done.
bool show_progress(ProgressTimer& timer, const std::string& name, std::int64_t done,
                   std::int64_t total) {
  const double fraction = static_cast<double>(done) / static_cast<double>(total);
  if (timer.due()) ProgressTimer::show(progress_text(name, fraction, timer.seconds()));
  return true;
}

std::vector<EvalResult> score_tasks(const EvalTasks& tasks, EvaluationPass& runner) {
  Exchange exchange;
  RowScorer scorer(runner, exchange);
  ProgressTimer timer;
  return run_eval_tasks(
      tasks, scorer,
      {.on_batch = [&](const EvalTask& task, std::int64_t done, std::int64_t total,
                       double) { return show_progress(timer, task.name(), done, total); },
       .on_result = [&](const EvalResult&) { timer = ProgressTimer(); }});
}

// The base model of --base, or its log of --base-log.
struct BaseModel {
  std::unique_ptr<GenerationRunner> runner{};
  std::unique_ptr<LogProbSource> source{};

  // Loads it for a comparison with a model of `vocabulary` tokens.
  BaseModel(const InferConfig& settings, const PerplexityTask& task, std::int64_t vocabulary) {
    if (!settings.base_log.empty()) {
      source =
          std::make_unique<BaseLogReader>(settings.base_log, base_log_content(task, vocabulary));
    } else if (!settings.base.empty()) {
      const ModelConfig config = read_pretrained_shape(settings.base);
      runner = make_generation_runner(settings.dtype, config, window_shape(task.window()));
      load_model(*runner, settings.base);
      source = std::make_unique<LogitsScorer>(runner->evaluation(), task);
    }
  }
};

EvalResult comparison_result(const InferConfig& settings, const PerplexityTask& task,
                             const TokenComparison& comparison) {
  const std::string name = settings.base_log.empty() ? settings.base : settings.base_log;
  return {"comparison", task.file(), task.protocol() + "; base: " + name, comparison.tokens(),
          comparison_metrics(comparison.result())};
}

// Measures the perplexity, compares with the base model and writes the log of --save-log, in one
// pass that reads all log-probabilities.
std::vector<EvalResult> predict_tokens(const InferConfig& settings, const PerplexityTask& task,
                                       EvaluationPass& runner) {
  const std::int64_t vocabulary = runner.config().vocabulary;
  const BaseModel base(settings, task, vocabulary);
  std::optional<BaseLogWriter> log;
  if (!settings.save_log.empty())
    log.emplace(settings.save_log, base_log_content(task, vocabulary));
  RowScoreSums sums(task);
  ProgressTimer timer;
  std::int64_t tokens = 0;
  LogitsScorer scorer(runner, task);
  ObservedSource model(scorer, [&](const TokenLogProbs& prediction) {
    sums.add(-static_cast<double>(prediction.log_prob));
    if (log) log->add(prediction);
    show_progress(timer, task.name(), ++tokens, task.examples());
  });
  std::optional<TokenComparison> comparison;
  if (base.source) {
    comparison = compare_tokens(*base.source, model, [](std::int64_t) { return true; });
  } else {
    while (model.next() != nullptr) {
    }
  }
  std::vector<EvalResult> results = {
      {task.name(), task.file(), task.protocol(), task.examples(), task.metrics(sums.scores())}};
  if (comparison) results.push_back(comparison_result(settings, task, *comparison));
  if (log) log->commit();
  if (log) Notice::print("log: " + settings.save_log);
  return results;
}

// Loads the model for windows of `window` tokens and returns f(runner): the passes of training, or
// those of generation if the model or its cache are not in --dtype.
std::vector<EvalResult> with_runner(
    const InferConfig& settings, const ModelConfig& config, std::int64_t window,
    const std::function<std::vector<EvalResult>(EvaluationPass&)>& f) {
  const RunShape shape = window_shape(window);
  if (settings.quant == Quant::none && settings.kv_dtype == cache_dtype(settings.dtype)) {
    const auto runner = make_generation_runner(settings.dtype, config, shape);
    load_model(*runner, settings);
    return f(runner->evaluation());
  }
  const auto runner = make_decoding_runner(settings, config);
  const auto pass = make_pass(settings, *runner, PromptRunner::batch_shape(shape));
  PromptRunner prompts(*pass, runner->context(), shape, runner->memory());
  load_model(*runner, settings);
  pass->clear();
  return f(prompts);
}

}  // namespace

void score(const InferConfig& settings) {
  const ModelFiles files = read_model_files(settings);
  const std::int64_t window = window_of(settings, files.config);
  const std::vector<std::string> specs(settings.command.begin() + 1, settings.command.end());
  const EvalTasks tasks =
      make_eval_tasks(specs, eval_options(settings, window), *files.tokenizer, window);
  print_text(eval_table(with_runner(settings, files.config, window, [&](EvaluationPass& runner) {
    return score_tasks(tasks, runner);
  })));
}

void perplexity(const InferConfig& settings) {
  const ModelFiles files = read_model_files(settings);
  const std::int64_t window = window_of(settings, files.config);
  EvalTasks tasks;
  tasks.push_back(make_eval_task({"perplexity", settings.command.at(1)},
                                 eval_options(settings, window), *files.tokenizer, window));
  const auto& task = static_cast<const PerplexityTask&>(*tasks.front());
  const bool needs_vocabulary =
      !settings.save_log.empty() || !settings.base.empty() || !settings.base_log.empty();
  print_text(eval_table(with_runner(settings, files.config, window, [&](EvaluationPass& runner) {
    return needs_vocabulary ? predict_tokens(settings, task, runner) : score_tasks(tasks, runner);
  })));
}

}  // namespace llmc
