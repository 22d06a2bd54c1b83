// The tasks of a training run's --eval.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/base/error.h"
#include "llmc/config/train_settings.h"
#include "llmc/eval/tasks.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Reads and tokenizes all files of --eval, for a model of T positions. Throws if --eval-stride is
// more than T.
inline EvalTasks make_eval_tasks(const EvaluationSettings<Resolved>& settings,
                                 const Tokenizer& tokenizer, std::int64_t T) {
  if (settings.stride > T) {
    fail_usage("--eval-stride " + std::to_string(settings.stride) + " is more than --seq-len " +
                   std::to_string(T),
               "use at most --seq-len, so that no token is skipped");
  }
  return make_eval_tasks(settings.tasks, {.limit = settings.limit, .stride = settings.stride},
                         tokenizer, T);
}

}  // namespace llmc
