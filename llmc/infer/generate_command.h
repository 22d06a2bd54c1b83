// infer_gpt2 without a command: continues prompts and prints the texts.
#pragma once

#include "llmc/config/infer_settings.h"
#include "llmc/infer/job.h"

namespace llmc {

// Continues the prompts of a job. Throws at the end if completions have an error.
void generate_texts(const InferConfig& settings, const Job& job);

// Reads prompts from stdin, line by line. Each continues the text so far, which begins with the
// prompt of the command line; a text that fills the context loses its first half.
void interact(const InferConfig& settings, Job job);

}  // namespace llmc
