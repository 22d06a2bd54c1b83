// Tasks of many examples, each a context and the tokens that may follow it: LAMBADA (Paperno et
// al., 2016), HellaSwag (Zellers et al., 2019) and RACE (Lai et al., 2017). Context and
// continuation are tokenized separately. The space between them belongs to the continuation, which
// is where GPT-2's tokenizer cuts anyway. A context that is too long loses its beginning, and a
// continuation that is longer than the model's context too, with all of its context; the protocol
// reports how many did.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmc/eval/task.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Contexts with their continuations, as rows of at most T + 1 tokens.
class ContinuationRows {
 public:
  explicit ContinuationRows(std::int64_t T) : T_(T) {}

  // Returns whether the continuation has more than T tokens, of which only the last T are scored.
  // `location` is FILE:LINE. Throws if the context or the continuation has no tokens.
  bool add(const Tokenizer& tokenizer, const std::string& context, const std::string& continuation,
           const std::string& location);

  const std::vector<EvalRow>& rows() const { return rows_; }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }

  std::string truncation_text() const;

 private:
  static std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& text,
                                          const std::string& location);

  std::int64_t T_, num_truncated_ = 0, num_cut_ = 0;
  std::vector<EvalRow> rows_;
};

class ExamplesTask : public EvalTask {
 public:
  ExamplesTask(const std::string& name, const std::string& file, std::int64_t T)
      : EvalTask(name, file), rows_(T) {}

  std::int64_t rows() const override { return rows_.size(); }
  std::int64_t row_length(std::int64_t i) const override {
    return static_cast<std::int64_t>(rows_.rows()[i].tokens.size());
  }
  EvalRow row(std::int64_t i) const override { return rows_.rows()[i]; }

 protected:
  std::string row_location(std::int64_t line) const { return file() + ":" + std::to_string(line); }

  ContinuationRows rows_;
};

// Predicts the last word of a passage, as lambada_openai of lm-evaluation-harness does: no filter
// of stop words, and the perplexity is per word, not per token.
class LambadaTask : public ExamplesTask {
 public:
  // `limit`: maximum number of examples, from the start of the file; 0: all.
  LambadaTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T,
              std::int64_t limit);

  std::string protocol() const override;
  std::int64_t examples() const override { return rows(); }
  bool needs_greedy() const override { return true; }

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override;
};

// Chooses one of several endings. Published scores differ in how they correct for the length of an
// ending: not at all (accuracy), by its bytes (acc_norm; lm-evaluation-harness counts characters,
// which are the same in ASCII), or by its tokens (acc_norm_tokens; llm.c).
class ChoiceTask : public ExamplesTask {
 public:
  using ExamplesTask::ExamplesTask;

  std::int64_t examples() const override { return static_cast<std::int64_t>(choices_.size()); }

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override;

 protected:
  // Adds an example whose right ending is endings[label]. `line`: its line in the file.
  void add_example(const Tokenizer& tokenizer, const std::string& context,
                   const std::vector<std::string>& endings, std::size_t label, std::int64_t line);

 private:
  struct Choice {
    std::int64_t first;  // its first row
    std::size_t count, label;
  };

  // The ending with the smallest nll / length; the first one if several are equal. Returns nothing
  // if the first ending's score is NaN; a later NaN is never the smallest.
  template <class Length>
  static std::optional<std::size_t> best_ending(const Choice& choice,
                                                std::span<const RowScore> scores,
                                                const Length& length) {
    const auto cost = [&](std::size_t ending) {
      const std::size_t i = static_cast<std::size_t>(choice.first) + ending;
      return scores[i].nll / length(i);
    };
    std::size_t best = 0;
    for (std::size_t ending = 1; ending < choice.count; ++ending) {
      if (cost(ending) < cost(best)) best = ending;
    }
    if (std::isnan(cost(best))) return std::nullopt;
    return best;
  }

  std::vector<Choice> choices_;
  std::vector<double> bytes_;  // length of each row's ending
};

// lm-evaluation-harness also writes the activity's label before the context and removes marks in
// brackets; here the text is unchanged.
class HellaSwagTask : public ChoiceTask {
 public:
  HellaSwagTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T,
                std::int64_t limit);

  std::string protocol() const override;
};

// Many questions of RACE are sentences with a gap, which their files write as `_`. The option then
// replaces the gap, and the text after the gap is scored with it: it is the same for all options,
// but its probability depends on them. lm-evaluation-harness writes "Question:" and "Answer:"
// before other questions; here nothing is added.
class RaceTask : public ChoiceTask {
 public:
  RaceTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T, std::int64_t limit);

  std::string protocol() const override;

 private:
  struct Gap {
    std::string before, after;
  };

  static std::string trimmed(const std::string& text);

  // The question before and after its first run of `_`. Without a gap all of it is before. A word
  // after the gap keeps a space before it; punctuation is attached to the option.
  static Gap split_at_gap(const std::string& question);
};

}  // namespace llmc
