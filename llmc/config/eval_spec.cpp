#include "llmc/config/eval_spec.h"

#include <cstddef>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

constexpr const char* kEvalTasks = "perplexity, wikitext, lambada, hellaswag or race";

}  // namespace

EvalSpec parse_eval_spec(const std::string& text) {
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
