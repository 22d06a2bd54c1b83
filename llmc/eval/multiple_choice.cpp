#include "llmc/eval/multiple_choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/eval/eval_files.h"

namespace llmc {

bool ContinuationRows::add(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& continuation, const std::string& location) {
  EvalRow row{encode(tokenizer, context, location), 0};
  const std::vector<std::int32_t> end = encode(tokenizer, continuation, location);
  if (row.tokens.empty() || end.empty()) {
    fail(location + ": '" + printable(continuation) + "' has " + std::to_string(end.size()) +
             " tokens after " + std::to_string(row.tokens.size()) + " of context",
         "give at least 1 of each");
  }
  const bool is_cut = std::ssize(end) > T_;
  if (is_cut) ++num_cut_;
  row.num_scored = std::min<std::int64_t>(T_, std::ssize(end));
  row.tokens.insert(row.tokens.end(), end.begin(), end.end());
  const auto surplus = static_cast<std::int64_t>(row.tokens.size()) - (T_ + 1);
  if (surplus > 0) {
    row.tokens.erase(row.tokens.begin(), row.tokens.begin() + surplus);
    ++num_truncated_;
  }
  rows_.push_back(std::move(row));
  return is_cut;
}

std::string ContinuationRows::truncation_text() const {
  return std::to_string(num_truncated_) + " of " + std::to_string(size()) +
         " contexts cut on the left to fit " + std::to_string(T_) + " tokens" +
         (num_cut_ == 0 ? ""
                        : ", " + std::to_string(num_cut_) +
                              " of them without context: their longer continuations are scored by "
                              "their last " +
                              std::to_string(T_) + " tokens");
}

std::vector<std::int32_t> ContinuationRows::encode(const Tokenizer& tokenizer,
                                                   const std::string& text,
                                                   const std::string& location) {
  try {
    return tokenizer.encode(text);
  } catch (const Error& error) {
    fail(location + ": " + error.marked_text());
  }
}

namespace {

// The fraction of right examples with its standard error, sqrt(p (1 - p) / (n - 1)).
EvalMetric proportion(const std::string& name, std::int64_t num_correct, std::int64_t n) {
  const double p = static_cast<double>(num_correct) / static_cast<double>(n);
  EvalMetric metric{name, p};
  if (n > 1) metric.standard_error = std::sqrt(p * (1 - p) / static_cast<double>(n - 1));
  return metric;
}

}  // namespace

LambadaTask::LambadaTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T,
                         std::int64_t limit)
    : ExamplesTask("lambada", file, T) {
  for (const LambadaExample& example : read_lambada(file, limit)) {
    rows_.add(tokenizer, example.context, example.word, row_location(example.line));
  }
}

std::string LambadaTask::protocol() const {
  return "the last word (the last space and the text after it), predicted from all text before "
         "it, without <|endoftext|>; accuracy: each token of the word is the most likely one; "
         "perplexity: exp(mean over examples of the word's nll); " +
         rows_.truncation_text();
}

std::vector<EvalMetric> LambadaTask::metrics(std::span<const RowScore> scores) const {
  double nll = 0;
  std::int64_t num_correct = 0;
  for (const RowScore& score : scores) {
    nll += score.nll;
    num_correct += score.greedy ? 1 : 0;
  }
  return {proportion("accuracy", num_correct, examples()),
          {"perplexity", std::exp(nll / static_cast<double>(examples()))}};
}

std::vector<EvalMetric> ChoiceTask::metrics(std::span<const RowScore> scores) const {
  std::int64_t correct_by_sum = 0, correct_by_bytes = 0, correct_by_tokens = 0;
  for (const Choice& choice : choices_) {
    const auto is_correct = [&](auto&& length) {
      return best_ending(choice, scores, length) == choice.label ? 1 : 0;
    };
    correct_by_sum += is_correct([](std::size_t) { return 1.0; });
    correct_by_bytes += is_correct([&](std::size_t i) { return bytes_[i]; });
    correct_by_tokens +=
        is_correct([&](std::size_t i) { return static_cast<double>(rows_.rows()[i].num_scored); });
  }
  return {proportion("accuracy", correct_by_sum, examples()),
          proportion("acc_norm", correct_by_bytes, examples()),
          proportion("acc_norm_tokens", correct_by_tokens, examples())};
}

void ChoiceTask::add_example(const Tokenizer& tokenizer, const std::string& context,
                             const std::vector<std::string>& endings, std::size_t label,
                             std::int64_t line) {
  choices_.push_back({rows(), endings.size(), label});
  for (const std::string& ending : endings) {
    const bool is_cut = rows_.add(tokenizer, context, " " + ending, row_location(line));
    // A cut ending is compared by the bytes that are scored.
    const std::span scored = std::span(rows_.rows().back().tokens).subspan(1);
    bytes_.push_back(static_cast<double>(is_cut ? tokenizer.decode(scored).size() : ending.size()));
  }
}

HellaSwagTask::HellaSwagTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T,
                             std::int64_t limit)
    : ChoiceTask("hellaswag", file, T) {
  for (const HellaSwagExample& example : read_hellaswag(file, limit)) {
    add_example(tokenizer, example.context, example.endings, example.label, example.line);
  }
}

std::string HellaSwagTask::protocol() const {
  return "the ending with the highest log-probability after ctx and a space, without "
         "<|endoftext|>; accuracy: sums are compared; acc_norm: sums divided by the ending's "
         "bytes; acc_norm_tokens: sums divided by its tokens; " +
         rows_.truncation_text();
}

RaceTask::RaceTask(const std::string& file, const Tokenizer& tokenizer, std::int64_t T,
                   std::int64_t limit)
    : ChoiceTask("race", file, T) {
  for (const RaceExample& example : read_race(file, limit)) {
    const Gap gap = split_at_gap(example.question);
    std::vector<std::string> endings;
    for (const std::string& option : example.options) endings.push_back(option + gap.after);
    add_example(tokenizer, trimmed(example.article) + "\n" + gap.before, endings, example.answer,
                example.line);
  }
}

std::string RaceTask::protocol() const {
  return "the option with the highest log-probability after article, newline, question and a "
         "space, without <|endoftext|>; an option replaces the question's first gap (_), and the "
         "text after the gap is scored with it; accuracy: sums are compared; acc_norm: sums "
         "divided by the bytes of the scored text; acc_norm_tokens: sums divided by its "
         "tokens; " +
         rows_.truncation_text();
}

std::string RaceTask::trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

RaceTask::Gap RaceTask::split_at_gap(const std::string& question) {
  const std::size_t gap = question.find('_');
  if (gap == question.npos) return {trimmed(question), ""};
  const std::size_t end = std::min(question.find_first_not_of('_', gap), question.size());
  const std::string after = trimmed(question.substr(end));
  const bool is_attached = after.empty() || std::ispunct(static_cast<unsigned char>(after[0])) != 0;
  return {trimmed(question.substr(0, gap)), is_attached ? after : " " + after};
}

}  // namespace llmc
