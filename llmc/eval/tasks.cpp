#include "llmc/eval/tasks.h"

#include <chrono>

#include "llmc/eval/multiple_choice.h"
#include "llmc/eval/perplexity.h"

namespace llmc {

std::unique_ptr<EvalTask> make_eval_task(const EvalSpec& spec, const EvalOptions& options,
                                         const Tokenizer& tokenizer, std::int64_t T) {
  if (spec.task == "lambada") {
    return std::make_unique<LambadaTask>(spec.file, tokenizer, T, options.limit);
  }
  if (spec.task == "hellaswag") {
    return std::make_unique<HellaSwagTask>(spec.file, tokenizer, T, options.limit);
  }
  if (spec.task == "race") {
    return std::make_unique<RaceTask>(spec.file, tokenizer, T, options.limit);
  }
  const PerplexityTask::Options windows{.T = T,
                                        .stride = options.stride,
                                        .limit = options.limit,
                                        .bin_format = options.bin_format,
                                        .detokenize = spec.task == "wikitext",
                                        .standard_errors = options.standard_errors,
                                        .source_name = options.source_name};
  return std::make_unique<PerplexityTask>(spec.task, spec.file, tokenizer, windows);
}

EvalTasks make_eval_tasks(const std::vector<std::string>& specs, const EvalOptions& options,
                          const Tokenizer& tokenizer, std::int64_t T) {
  EvalTasks tasks;
  for (const std::string& spec : specs) {
    tasks.push_back(make_eval_task(parse_eval_spec(spec), options, tokenizer, T));
  }
  return tasks;
}

std::vector<EvalResult> run_eval_tasks(const EvalTasks& tasks, RowScoring& scorer,
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
