#include <algorithm>
#include <cstddef>
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

// The names of the sources whose tokens differ from those of the checkpoint, which had the same
// sources; empty if there is none, or if the checkpoint has no hashes.
std::string changed_sources(const SourceHashes& old, const SourceHashes& current) {
  std::string names;
  if (old.hashes.size() != current.hashes.size() || old.hashes == current.hashes) return names;
  std::string_view before = old.hashes, now = current.hashes;
  for (const std::string& name : current.names) {
    const std::size_t length = std::min(before.find(','), before.size());
    if (before.substr(0, length) != now.substr(0, length)) {
      names += (names.empty() ? "" : ", ") + name;
    }
    before.remove_prefix(std::min(length + 1, before.size()));
    now.remove_prefix(std::min(length + 1, now.size()));
  }
  return names;
}

// Whether a setting differs that changes how texts become tokens. It is reported itself.
bool reads_differently(const RunPosition& old, const RunPosition& current) {
  for (const char* flag :
       {"--text-format", "--text-field", "--split-on", "--skip-bad-lines", "--bin-format"}) {
    const auto before = old.flags.find(flag), now = current.flags.find(flag);
    if (before != old.flags.end() && now != current.flags.end() && before->second != now->second) {
      return true;
    }
  }
  return false;
}

// Whether validation losses of the two positions are of the same windows.
bool same_validation(const RunPosition& old, const RunPosition& current) {
  if (old.T != current.T || old.vocabulary != current.vocabulary) return false;
  const auto same = [&](const char* flag) {
    const auto before = old.flags.find(flag), now = current.flags.find(flag);
    return before == old.flags.end() || now == current.flags.end() || before->second == now->second;
  };
  const auto val = current.flags.find("--val");
  const bool end_of_train = val == current.flags.end() || val->second == Scalar("");
  const bool same_text = same("--val") && (!end_of_train || old.train == current.train) &&
                         changed_sources(old.validation_data, current.validation_data).empty();
  return same_text && same("--split") && same("--keep-best-by") && same("--eval-batches") &&
         same("--batch-size");
}

// The note about validation data that changed in their files; empty if there is none to report.
std::string validation_note(const RunPosition& old, const RunPosition& current) {
  const auto before = old.flags.find("--val"), now = current.flags.find("--val");
  const bool same_flag =
      before == old.flags.end() || now == current.flags.end() || before->second == now->second;
  if (!same_flag || old.T != current.T || reads_differently(old, current)) return {};
  const std::string names = changed_sources(old.validation_data, current.validation_data);
  if (names.empty()) return {};
  return "the validation data (" + names +
         ") have changed since the checkpoint: losses from before "
         "are not comparable";
}

// The recorded size of a step.
struct StepSize {
  std::int64_t micro_batch;  // tokens of a micro-batch of one data-parallel rank
  std::int64_t data_ranks;
  std::int64_t tokens;  // on all ranks
};

// Empty if the settings are those of an older program, which recorded fewer.
std::optional<StepSize> step_size(const RunPosition& position) {
  const auto value = [&](const char* flag) -> std::optional<std::int64_t> {
    const auto entry = position.flags.find(flag);
    if (entry == position.flags.end()) return std::nullopt;
    return entry->second.integer(flag);
  };
  const auto B = value("--batch-size"), accum = value("--grad-accum"), ranks = value("--ranks");
  if (!B || !accum || !ranks) return std::nullopt;
  const std::int64_t divisor = value("--tp").value_or(1) * value("--pp").value_or(1);
  const std::int64_t micro_batch = *B * position.T;
  const std::int64_t data_ranks = *ranks / std::max<std::int64_t>(1, divisor);
  return StepSize{micro_batch, data_ranks, micro_batch * *accum * data_ranks};
}

// The note about a step of another size; empty if there is none to report. With another number of
// data-parallel ranks, it names the flag that would keep the size.
std::string step_size_note(const RunPosition& old, const RunPosition& current) {
  const std::optional<StepSize> before = step_size(old), now = step_size(current);
  if (!before || !now || before->tokens == now->tokens) return {};
  std::string text = "steps had " + std::to_string(before->tokens) + " tokens and now have " +
                     std::to_string(now->tokens);
  if (before->data_ranks == now->data_ranks) return text;
  text += ", on " + std::to_string(now->data_ranks) + " instead of " +
          std::to_string(before->data_ranks) + " data-parallel ranks";
  if (before->tokens % (now->micro_batch * now->data_ranks) != 0) return text;
  return text + "; --total-batch-tokens " + std::to_string(before->tokens) + " keeps them";
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
  } else if (const std::string names = changed_sources(position.train_data, current.train_data);
             !names.empty() && !reads_differently(position, current)) {
    notes.push_back(names +
                    " has changed since the checkpoint: its tokens are others, though as "
                    "many as before");
  }
  if (const std::string note = validation_note(position, current); notes.empty() && !note.empty()) {
    notes.push_back(note);
  }
  if (position.T != current.T && position.T > 0) {
    const std::int64_t samples = ceil_div(position.samples * position.T, current.T);
    notes.push_back("sequences had " + std::to_string(position.T) + " tokens and now have " +
                    std::to_string(current.T) +
                    ": the windows and their order change, and the run " +
                    "continues at sequence " + std::to_string(samples));
    position.samples = samples;
  }
  if (const std::string note = step_size_note(position, current); !note.empty()) {
    notes.push_back(note);
  }
  const std::vector<std::string> flags = changed_settings(position.flags, current.flags);
  notes.insert(notes.end(), flags.begin(), flags.end());
  continue_history(position, current.train, notes);
  if (!same_validation(position, current)) position.best.reset();
  position.T = current.T;
  position.train_data = current.train_data;
  position.validation_data = current.validation_data;
  position.train = current.train;
  position.train_tokens = current.train_tokens;
  position.vocabulary = current.vocabulary;
  position.flags = current.flags;
  return notes;
}

}  // namespace llmc
