#include "llmc/train/run/eval_tasks.h"

#include <string>

#include "llmc/base/error.h"

namespace llmc {

EvalTasks make_eval_tasks(const EvaluationSettings<Resolved>& settings, BinFormat bin_format,
                          const Tokenizer& tokenizer, std::int64_t T) {
  if (settings.stride > T) {
    fail_usage("--eval-stride " + std::to_string(settings.stride) + " is more than --seq-len " +
                   std::to_string(T),
               "use at most --seq-len, so that no token is skipped");
  }
  return make_eval_tasks(
      settings.tasks,
      {.limit = settings.limit, .stride = settings.stride, .bin_format = bin_format}, tokenizer, T);
}

}  // namespace llmc
