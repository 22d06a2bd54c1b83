// Texts about a run that a signal interrupts.
#pragma once

#include <cstdint>
#include <string>

namespace llmc {

// The work of a run when a signal arrives; between: none of the others.
enum class RunActivity : std::int32_t { between, step, validation, evaluation, sampling, saving };

// "training", "validation", ...; for reports about ranks.
const char* activity_name(RunActivity activity);

// The state of a run when a signal arrives.
struct RunMoment {
  RunActivity activity = RunActivity::between;
  std::int64_t step = 0;         // of a training step: its number; otherwise the steps done
  std::int64_t saved_step = -1;  // the newest checkpoint; -1: none
  bool training = true;          // false: with --steps 0, only evaluates
  bool saves = false;            // whether the run has --out
};

// The answer to the first signal: what the run still does, and what a second signal does.
std::string first_answer(const RunMoment& run);

// The message of a run that a second signal ends at once: what was saved before.
std::string final_message(const RunMoment& run, int signal);

}  // namespace llmc
