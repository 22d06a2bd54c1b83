// The last lines of a run: what it did, its losses, where it is saved, and what to do next.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

struct RunSummary {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::int64_t first_step = 0;    // steps before this process
  std::int64_t first_tokens = 0;  // tokens before this process
  std::int64_t step = 0;          // steps done
  std::int64_t last_step = 0;     // --steps
  std::int64_t tokens = 0;        // trained on by this process
  double seconds = 0;             // of this process
  double step_seconds = 0;        // in steps, without validation, samples and saves
  std::optional<MeasuredLoss> validation = {}, best = {};
  std::string saved = {};  // path of the newest checkpoint; empty: none
};

// Returns the lines, without a line break after the last one.
std::string summary_text(const RunSummary& run);

// The command to try after a run that ended at `step`.
std::string next_command(const RunConfig& config, std::int64_t step, const Tokenizer& tokenizer);

}  // namespace llmc
