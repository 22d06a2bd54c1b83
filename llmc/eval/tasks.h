// Reads the tasks that a program was given, before it runs a model, and runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llmc/config/eval_spec.h"
#include "llmc/eval/report.h"
#include "llmc/eval/task.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

using EvalTasks = std::vector<std::unique_ptr<EvalTask>>;

struct EvalOptions {
  std::int64_t limit = 0;   // maximum number of examples, or of windows of a text, per file; 0: all
  std::int64_t stride = 0;  // tokens between the starts of the windows of a text, 1 to T
  BinFormat bin_format = BinFormat::llmc;  // of token files
  bool standard_errors = false;        // report those of a text's token_nll and token_perplexity
  std::string source_name = "--eval";  // what names the files, for errors
};

// Reads and tokenizes the file of a task, for a model of T positions.
std::unique_ptr<EvalTask> make_eval_task(const EvalSpec& spec, const EvalOptions& options,
                                         const Tokenizer& tokenizer, std::int64_t T);

// Reads and tokenizes all files of the tasks, TASK:FILE each, so that an error in a file is
// reported before a run and not at its end.
EvalTasks make_eval_tasks(const std::vector<std::string>& specs, const EvalOptions& options,
                          const Tokenizer& tokenizer, std::int64_t T);

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
std::vector<EvalResult> run_eval_tasks(const EvalTasks& tasks, RowScoring& scorer,
                                       const EvalCallbacks& callbacks);

}  // namespace llmc
