// The value of --eval: an evaluation task and the file it reads.
#pragma once

#include <string>

namespace llmc {

// One entry of --eval.
struct EvalSpec {
  std::string task, file;
};

// Parses "TASK:FILE". Throws if the task is unknown or the file name is empty.
EvalSpec parse_eval_spec(const std::string& text);

}  // namespace llmc
