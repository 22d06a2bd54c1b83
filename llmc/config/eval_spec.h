// The value of --eval: an evaluation task and the file it reads.
#pragma once

#include <cstddef>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

// One entry of --eval.
struct EvalSpec {
  std::string task, file;
};

inline constexpr const char* kEvalTasks = "perplexity, wikitext, lambada, hellaswag or race";

// Parses "TASK:FILE". Throws if the task is unknown or the file name is empty.
inline EvalSpec parse_eval_spec(const std::string& text) {
  const std::size_t colon = text.find(':');
  const EvalSpec spec{text.substr(0, colon),
                      colon == std::string::npos ? "" : text.substr(colon + 1)};
  const bool is_known = spec.task == "perplexity" || spec.task == "wikitext" ||
                        spec.task == "lambada" || spec.task == "hellaswag" || spec.task == "race";
  if (is_known && !spec.file.empty()) return spec;
  fail("'" + printable(text) + "' is not TASK:FILE",
       "give TASK:FILE; TASK is " + std::string(kEvalTasks));
}

}  // namespace llmc
