// Reads the tasks that --eval names before a run starts, and runs them with its model.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/train_settings.h"
#include "llmc/eval/eval_files.h"
#include "llmc/eval/multiple_choice.h"
#include "llmc/eval/perplexity.h"
#include "llmc/eval/report.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/eval/task.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

using EvalTasks = std::vector<std::unique_ptr<EvalTask>>;

inline std::unique_ptr<EvalTask> make_eval_task(const EvalSpec& spec,
                                                const EvaluationSettings<Resolved>& settings,
                                                const Tokenizer& tokenizer, std::int64_t T) {
  if (spec.task == "lambada") {
    return std::make_unique<LambadaTask>(spec.file, tokenizer, T, settings.limit);
  }
  if (spec.task == "hellaswag") {
    return std::make_unique<HellaSwagTask>(spec.file, tokenizer, T, settings.limit);
  }
  const PerplexityTask::Options options{.T = T,
                                        .stride = settings.stride,
                                        .limit = settings.limit,
                                        .detokenize = spec.task == "wikitext"};
  return std::make_unique<PerplexityTask>(spec.task, spec.file, tokenizer, options);
}

// Reads and tokenizes all files of --eval, for a model of T positions, so that an error in a file
// is reported before a run and not at its end.
inline EvalTasks make_eval_tasks(const EvaluationSettings<Resolved>& settings,
                                 const Tokenizer& tokenizer, std::int64_t T) {
  if (settings.stride > T) {
    fail("--eval-stride " + std::to_string(settings.stride) + " is more than --seq-len " +
             std::to_string(T),
         "use at most --seq-len, so that no token is skipped");
  }
  EvalTasks tasks;
  for (const std::string& spec : settings.tasks) {
    tasks.push_back(make_eval_task(parse_eval_spec(spec), settings, tokenizer, T));
  }
  return tasks;
}

// Functions that are called while tasks run.
struct EvalCallbacks {
  // Called after each batch of a task with the tokens scored so far, their total and the seconds
  // since the task began; returns false to stop, which drops this task and those after it.
  std::function<bool(const EvalTask& task, std::int64_t done, std::int64_t total, double seconds)>
      on_batch;
  // Called when a task has its result.
  std::function<void(const EvalResult& result)> on_result;
};

// Runs the tasks in turn and returns the results of those that were completed.
template <class T>
std::vector<EvalResult> run_eval_tasks(const EvalTasks& tasks, RowScorer<T> scorer,
                                       const EvalCallbacks& callbacks) {
  using Clock = std::chrono::steady_clock;
  std::vector<EvalResult> results;
  for (const auto& task : tasks) {
    const auto start = Clock::now();
    const auto scores = scorer.score(*task, [&](std::int64_t done, std::int64_t total) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      return callbacks.on_batch(*task, done, total, seconds);
    });
    if (scores.empty()) break;
    results.push_back(
        {task->name(), task->file(), task->protocol(), task->examples(), task->metrics(scores)});
    callbacks.on_result(results.back());
  }
  return results;
}

}  // namespace llmc
