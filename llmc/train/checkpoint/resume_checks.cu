#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/json_value.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/device/math.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/train/checkpoint/resume_checks.h"

namespace llmc {

std::string vocabulary_checksum(const Tokenizer& tokenizer) {
  Checksum sum;
  const auto add = [&](std::string_view text) {
    const std::string length = std::to_string(text.size()) + ":";
    sum.add(std::as_bytes(std::span(length)));
    sum.add(std::as_bytes(std::span(text)));
  };
  add(std::to_string(tokenizer.end_of_text().value_or(-1)));
  for (std::int64_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    try {
      add(tokenizer.decode(std::span(&token, 1)));
    } catch (const Error&) {
      add("none");
    }
  }
  return checksum_text(sum.value());
}

void check_same_vocabulary(const std::filesystem::path& checkpoint, const std::string& saved,
                           const std::string& ours, const std::string& tokenizer) {
  if (saved.empty() || saved == ours) return;
  fail(checkpoint.string() + " was trained with another vocabulary than that of --tokenizer " +
           tokenizer,
       "resume with the run's own --tokenizer");
}

namespace {

// Whether validation losses of the two positions are of the same windows.
bool same_validation(const RunPosition& old, const RunPosition& current) {
  if (old.T != current.T || old.vocabulary != current.vocabulary) return false;
  const auto same = [&](const char* flag) {
    const auto before = old.flags.find(flag), now = current.flags.find(flag);
    return before == old.flags.end() || now == current.flags.end() || before->second == now->second;
  };
  const auto val = current.flags.find("--val");
  const bool end_of_train = val == current.flags.end() || val->second == Scalar("");
  const bool same_text = same("--val") && (!end_of_train || old.train == current.train);
  return same_text && same("--eval-batches") && same("--batch-size");
}

// The tokens of a step, on all ranks; empty if the settings are those of an older program, which
// recorded fewer.
std::optional<std::int64_t> tokens_per_step(const RunPosition& position) {
  const auto value = [&](const char* flag) -> std::optional<std::int64_t> {
    const auto entry = position.flags.find(flag);
    if (entry == position.flags.end()) return std::nullopt;
    return entry->second.integer(flag);
  };
  const auto B = value("--batch-size"), accum = value("--grad-accum"), ranks = value("--ranks");
  if (!B || !accum || !ranks) return std::nullopt;
  const std::int64_t divisor = value("--tp").value_or(1) * value("--pp").value_or(1);
  return *B * *accum * position.T * (*ranks / std::max<std::int64_t>(1, divisor));
}

// Begins a new stretch of the run's history if anything changed. A checkpoint of an older program
// has no history: its steps become one stretch.
void continue_history(RunPosition& position, const std::string& train,
                      const std::vector<std::string>& changes) {
  TrainingHistory& history = position.history;
  if (history.empty()) {
    history.push_back(
        {.last_step = position.step, .tokens = position.tokens, .train = position.train});
  }
  if (changes.empty()) return;
  history.push_back({.first_step = position.step + 1,
                     .last_step = position.step,
                     .train = train,
                     .changes = changes});
}

}  // namespace

std::vector<std::string> adapt_position(RunPosition& position, const RunPosition& current) {
  std::vector<std::string> notes;
  const std::int64_t old_tokens = position.train_tokens;
  if (position.train != current.train) {
    notes.push_back("the run trained on " + position.train + " so far and continues with " +
                    current.train);
  } else if (old_tokens >= 0 && old_tokens != current.train_tokens) {
    notes.push_back(current.train + " had " + std::to_string(old_tokens) + " tokens and now has " +
                    std::to_string(current.train_tokens) + ": the windows and their order change");
  }
  if (position.T != current.T && position.T > 0) {
    const std::int64_t samples = ceil_div(position.samples * position.T, current.T);
    notes.push_back("sequences had " + std::to_string(position.T) + " tokens and now have " +
                    std::to_string(current.T) +
                    ": the windows and their order change, and the run " +
                    "continues at sequence " + std::to_string(samples));
    position.samples = samples;
  }
  const auto old_step = tokens_per_step(position);
  const auto new_step = tokens_per_step(current);
  if (old_step && new_step && old_step != new_step) {
    notes.push_back("steps had " + std::to_string(*old_step) + " tokens and now have " +
                    std::to_string(*new_step));
  }
  const std::vector<std::string> flags = changed_settings(position.flags, current.flags);
  notes.insert(notes.end(), flags.begin(), flags.end());
  continue_history(position, current.train, notes);
  if (!same_validation(position, current)) position.best.reset();
  position.T = current.T;
  position.train = current.train;
  position.train_tokens = current.train_tokens;
  position.vocabulary = current.vocabulary;
  position.flags = current.flags;
  return notes;
}

}  // namespace llmc
