// The tasks of a training run's --eval.
#pragma once

#include <cstdint>

#include "llmc/base/resolved.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/eval/tasks.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Reads and tokenizes all files of --eval, for a model of T positions; token files are in
// `bin_format`. Throws if --eval-stride is
// more than T.
EvalTasks make_eval_tasks(const EvaluationSettings<Resolved>& settings, BinFormat bin_format,
                          const Tokenizer& tokenizer, std::int64_t T);

}  // namespace llmc
