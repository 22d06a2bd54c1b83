// Tasks of many examples, each a context and the tokens that may follow it: LAMBADA (Paperno et
// al., 2016), HellaSwag (Zellers et al., 2019) and RACE (Lai et al., 2017). Context and
// continuation are tokenized separately. The space between them belongs to the continuation, which
// is where GPT-2's tokenizer cuts anyway. A context that is too long loses its beginning; the
// protocol reports how many did.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/eval/eval_files.h"
#include "llmc/eval/task.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Contexts with their continuations, as rows of at most T + 1 tokens.
class ContinuationRows {
 public:
  explicit ContinuationRows(std::int64_t T) : T_(T) {}

  // `location` is FILE:LINE. Throws if the context or the continuation has no tokens, or if the
  // continuation has more than T, which would leave no context.
  void add(const Tokenizer& tokenizer, const std::string& context, const std::string& continuation,
           const std::string& location) {
    EvalRow row{encode(tokenizer, context, location), 0};
    const std::vector<std::int32_t> end = encode(tokenizer, continuation, location);
    row.num_scored = static_cast<std::int64_t>(end.size());
    if (row.num_scored > T_ || row.tokens.empty() || end.empty()) {
      fail(location + ": '" + printable(continuation) + "' has " + std::to_string(row.num_scored) +
               " tokens after " + std::to_string(row.tokens.size()) + " of context",
           "give at least 1 of each, and at most " + quantity("sequence length") + " = " +
               std::to_string(T_) + " to score");
    }
    row.tokens.insert(row.tokens.end(), end.begin(), end.end());
    const auto surplus = static_cast<std::int64_t>(row.tokens.size()) - (T_ + 1);
    if (surplus > 0) {
      row.tokens.erase(row.tokens.begin(), row.tokens.begin() + surplus);
      ++num_truncated_;
    }
    rows_.push_back(std::move(row));
  }

  const std::vector<EvalRow>& rows() const { return rows_; }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }

  std::string truncation_text() const {
    return std::to_string(num_truncated_) + " of " + std::to_string(size()) +
           " contexts cut on the left to fit " + std::to_string(T_) + " tokens";
  }

 private:
  static std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& text,
                                          const std::string& location) {
    try {
      return tokenizer.encode(text);
    } catch (const Error& error) {
      fail(location + ": " + error.marked_text());
    }
  }

  std::int64_t T_, num_truncated_ = 0;
  std::vector<EvalRow> rows_;
};

// The fraction of right examples with its standard error, sqrt(p (1 - p) / (n - 1)).
inline EvalMetric proportion(const std::string& name, std::int64_t num_correct, std::int64_t n) {
  const double p = static_cast<double>(num_correct) / static_cast<double>(n);
  EvalMetric metric{name, p};
  if (n > 1) metric.standard_error = std::sqrt(p * (1 - p) / static_cast<double>(n - 1));
  return metric;
}

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
              std::int64_t limit)
      : ExamplesTask("lambada", file, T) {
    for (const LambadaExample& example : read_lambada(file, limit)) {
      rows_.add(tokenizer, example.context, example.word, row_location(example.line));
    }
  }

  std::string protocol() const override {
    return "the last word (the last space and the text after it), predicted from all text before "
           "it, without <|endoftext|>; accuracy: each token of the word is the most likely one; "
           "perplexity: exp(mean over examples of the word's nll); " +
           rows_.truncation_text();
  }
  std::int64_t examples() const override { return rows(); }
  bool needs_greedy() const override { return true; }

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override {
    double nll = 0;
    std::int64_t num_correct = 0;
    for (const RowScore& score : scores) {
      nll += score.nll;
      num_correct += score.greedy ? 1 : 0;
    }
    return {proportion("accuracy", num_correct, examples()),
            {"perplexity", std::exp(nll / static_cast<double>(examples()))}};
  }
};

// Chooses one of several endings. Published scores differ in how they correct for the length of an
// ending: not at all (accuracy), by its bytes (acc_norm; lm-evaluation-harness counts characters,
// which are the same in ASCII), or by its tokens (acc_norm_tokens; llm.c).
class ChoiceTask : public ExamplesTask {
 public:
  using ExamplesTask::ExamplesTask;

  std::int64_t examples() const override { return static_cast<std::int64_t>(choices_.size()); }

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override {
    std::int64_t correct_by_sum = 0, correct_by_bytes = 0, correct_by_tokens = 0;
    for (const Choice& choice : choices_) {
      const auto is_correct = [&](auto&& length) {
        return best_ending(choice, scores, length) == choice.label ? 1 : 0;
      };
      correct_by_sum += is_correct([](std::size_t) { return 1.0; });
      correct_by_bytes += is_correct([&](std::size_t i) { return bytes_[i]; });
      correct_by_tokens += is_correct(
          [&](std::size_t i) { return static_cast<double>(rows_.rows()[i].num_scored); });
    }
    return {proportion("accuracy", correct_by_sum, examples()),
            proportion("acc_norm", correct_by_bytes, examples()),
            proportion("acc_norm_tokens", correct_by_tokens, examples())};
  }

 protected:
  // Adds an example whose right ending is endings[label]. `line`: its line in the file.
  void add_example(const Tokenizer& tokenizer, const std::string& context,
                   const std::vector<std::string>& endings, std::size_t label, std::int64_t line) {
    choices_.push_back({rows(), endings.size(), label});
    for (const std::string& ending : endings) {
      rows_.add(tokenizer, context, " " + ending, row_location(line));
      bytes_.push_back(static_cast<double>(ending.size()));
    }
  }

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
                std::int64_t limit)
      : ChoiceTask("hellaswag", file, T) {
    for (const HellaSwagExample& example : read_hellaswag(file, limit)) {
      add_example(tokenizer, example.context, example.endings, example.label, example.line);
    }
  }

  std::string protocol() const override {
    return "the ending with the highest log-probability after ctx and a space, without "
           "<|endoftext|>; accuracy: sums are compared; acc_norm: sums divided by the ending's "
           "bytes; acc_norm_tokens: sums divided by its tokens; " +
           rows_.truncation_text();
  }
};

// Many questions of RACE are sentences with a gap, which their files write as `_`. The option then
// replaces the gap, and the text after the gap is scored with it: it is the same for all options,
// but its probability depends on them. lm-evaluation-harness writes "Question:" and "Answer:"
// before other questions; here nothing is added.
class RaceTask : public ChoiceTask {
 public:
  RaceTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T, std::int64_t limit)
      : ChoiceTask("race", file, T) {
    for (const RaceExample& example : read_race(file, limit)) {
      const Gap gap = split_at_gap(example.question);
      std::vector<std::string> endings;
      for (const std::string& option : example.options) endings.push_back(option + gap.after);
      add_example(tokenizer, trimmed(example.article) + "\n" + gap.before, endings, example.answer,
                  example.line);
    }
  }

  std::string protocol() const override {
    return "the option with the highest log-probability after article, newline, question and a "
           "space, without <|endoftext|>; an option replaces the question's first gap (_), and the "
           "text after the gap is scored with it; accuracy: sums are compared; acc_norm: sums "
           "divided by the bytes of the scored text; acc_norm_tokens: sums divided by its "
           "tokens; " +
           rows_.truncation_text();
  }

 private:
  struct Gap {
    std::string before, after;
  };

  static std::string trimmed(const std::string& text) {
    constexpr const char* kSpace = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kSpace);
    if (begin == text.npos) return "";
    return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  }

  // The question before and after its first run of `_`. Without a gap all of it is before. A word
  // after the gap keeps a space before it; punctuation is attached to the option.
  static Gap split_at_gap(const std::string& question) {
    const std::size_t gap = question.find('_');
    if (gap == question.npos) return {trimmed(question), ""};
    const std::size_t end = std::min(question.find_first_not_of('_', gap), question.size());
    const std::string after = trimmed(question.substr(end));
    const bool is_attached =
        after.empty() || std::ispunct(static_cast<unsigned char>(after[0])) != 0;
    return {trimmed(question.substr(0, gap)), is_attached ? after : " " + after};
  }
};

}  // namespace llmc
