// The commands of infer_gpt2 that measure quality: `perplexity FILE` and `score TASK:FILE ...`.
// Both use the passes of training, in --dtype, so their results are those of train_gpt2 --eval.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/base/standard_output.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/exchange.h"
#include "llmc/config/infer_settings.h"
#include "llmc/eval/base_log.h"
#include "llmc/eval/comparison.h"
#include "llmc/eval/logits_scorer.h"
#include "llmc/eval/report.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/eval/tasks.h"
#include "llmc/infer/load_engine.h"
#include "llmc/infer/prompt.h"
#include "llmc/model/engine.h"
#include "llmc/model/pretrained.h"

namespace llmc {

namespace quality_detail {

// The shape of a model that is scored on windows of T tokens, one at a time.
inline RunShape window_shape(std::int64_t T) {
  return {.B = 1, .T = T, .training = false};
}

inline std::int64_t window_of(const InferConfig& settings, const Gpt2Config& config) {
  if (settings.seq_len > config.context) {
    fail("--seq-len " + std::to_string(settings.seq_len) + " exceeds the context of " +
             std::to_string(config.context),
         "use at most the context");
  }
  return settings.seq_len > 0 ? settings.seq_len : config.context;
}

inline EvalOptions eval_options(const InferConfig& settings, std::int64_t T) {
  const std::int64_t stride = settings.stride > 0 ? settings.stride : (T + 1) / 2;
  if (stride > T) {
    fail("--stride " + std::to_string(stride) + " is more than the window of " + std::to_string(T) +
             " tokens",
         "use at most --seq-len, so that no token is skipped");
  }
  return {.limit = settings.limit, .stride = stride, .standard_errors = true};
}

// Shows the fraction of a task that is done.
inline bool show_progress(ProgressTimer& timer, const std::string& name, std::int64_t done,
                          std::int64_t total) {
  const double fraction = static_cast<double>(done) / static_cast<double>(total);
  if (timer.due()) ProgressTimer::show(progress_text(name, fraction, timer.seconds()));
  return true;
}

template <class T>
std::vector<EvalResult> score_tasks(const EvalTasks& tasks, Engine<T>& engine) {
  Exchange exchange;
  RowScorer<T> scorer(engine.runner(), exchange);
  ProgressTimer timer;
  return run_eval_tasks(
      tasks, scorer,
      {.on_batch = [&](const EvalTask& task, std::int64_t done, std::int64_t total,
                       double) { return show_progress(timer, task.name(), done, total); },
       .on_result = [&](const EvalResult&) { timer = ProgressTimer(); }});
}

// Compares the model with the base model of --base or --base-log.
template <class T>
EvalResult compare(const InferConfig& settings, const PerplexityTask& task, Engine<T>& engine) {
  std::optional<Engine<T>> base_engine;
  std::unique_ptr<LogProbSource> base;
  if (settings.base_log.empty()) {
    const Gpt2Config base_config =
        from_huggingface(read_pretrained_config(settings.base), settings.base);
    base_engine.emplace(base_config, window_shape(task.window()));
    load_engine(*base_engine, settings.base);
    base = std::make_unique<LogitsScorer<T>>(base_engine->runner(), task);
  } else {
    base = std::make_unique<BaseLogReader>(settings.base_log,
                                           base_log_content(task, engine.config().vocabulary));
  }
  LogitsScorer<T> model(engine.runner(), task);
  ProgressTimer timer;
  const TokenComparison comparison = compare_tokens(*base, model, [&](std::int64_t tokens) {
    return show_progress(timer, "comparison", tokens, task.examples());
  });
  const std::string name = settings.base_log.empty() ? settings.base : settings.base_log;
  return {"comparison", task.file(), task.protocol() + "; base: " + name, comparison.tokens(),
          comparison_metrics(comparison.result())};
}

// Writes the log of --save-log.
template <class T>
void save_log(const InferConfig& settings, const PerplexityTask& task, Engine<T>& engine) {
  BaseLogWriter log(settings.save_log, base_log_content(task, engine.config().vocabulary));
  LogitsScorer<T> scorer(engine.runner(), task);
  ProgressTimer timer;
  std::int64_t tokens = 0;
  while (const TokenLogProbs* const prediction = scorer.next()) {
    log.add(*prediction);
    show_progress(timer, "log", ++tokens, task.examples());
  }
  log.commit();
  Notice::print("log: " + settings.save_log);
}

}  // namespace quality_detail

// `infer_gpt2 score TASK:FILE ...`: prints the table of --eval.
template <class T>
void score(const InferConfig& settings) {
  using namespace quality_detail;
  const ModelFiles files = read_model_files(settings);
  const std::int64_t window = window_of(settings, files.config);
  const std::vector<std::string> specs(settings.command.begin() + 1, settings.command.end());
  const EvalTasks tasks =
      make_eval_tasks(specs, eval_options(settings, window), *files.tokenizer, window);
  Engine<T> engine(files.config, window_shape(window));
  load_engine(engine, settings.model);
  print_text(eval_table(score_tasks<T>(tasks, engine)));
}

// `infer_gpt2 perplexity FILE`: prints a table of the perplexity and, with a base model, of the
// comparison.
template <class T>
void perplexity(const InferConfig& settings) {
  using namespace quality_detail;
  const ModelFiles files = read_model_files(settings);
  const std::int64_t window = window_of(settings, files.config);
  EvalTasks tasks;
  tasks.push_back(make_eval_task({"perplexity", settings.command.at(1)},
                                 eval_options(settings, window), *files.tokenizer, window));
  Engine<T> engine(files.config, window_shape(window));
  load_engine(engine, settings.model);
  std::vector<EvalResult> results = score_tasks<T>(tasks, engine);
  const auto& task = static_cast<const PerplexityTask&>(*tasks.front());
  if (!settings.save_log.empty()) save_log<T>(settings, task, engine);
  if (!settings.base.empty() || !settings.base_log.empty()) {
    results.push_back(compare<T>(settings, task, engine));
  }
  print_text(eval_table(results));
}

}  // namespace llmc
