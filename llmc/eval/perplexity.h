// Perplexity of a text.
//
// The whole text is one stream of tokens after an <|endoftext|> (if the tokenizer has one), so that
// its first token is predicted too. Windows of T tokens begin at every `stride`-th token. The first
// window scores all tokens that it predicts, each later one only those that no earlier window
// scored. So every token is scored once. Except at the beginning of the text, its context has at
// least T - stride + 1 tokens and at most T. With stride = T windows do not overlap: this is
// fastest, and worst for the tokens at their start.
//
// Perplexities per token of models with different tokens are not comparable. Perplexities per word,
// exp(total nll / words), are, because a text's words do not depend on the model: they are
// separated by white space in the file before any change. Bits per byte of that file are comparable
// too. WikiText's authors count a line's end as a word too (241211 words and 4358 lines are the
// 245569 tokens of WikiText-2's test set), and so do perplexities published for it;
// lm-evaluation-harness does not. Both are reported.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/eval/task.h"
#include "llmc/eval/wikitext.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class PerplexityTask : public EvalTask {
 public:
  struct Options {
    std::int64_t T = 0, stride = 0;  // 1 <= stride <= T
    bool detokenize = false;         // the file is WikiText: reassemble it before scoring
  };

  // Reads and tokenizes the file. Throws if it has nothing to score.
  PerplexityTask(const std::string& name, const std::string& file, const Tokenizer& tokenizer,
                 const Options& options)
      : EvalTask(name, file), options_(options) {
    require(options.stride >= 1 && options.stride <= options.T,
            "a stride of " + std::to_string(options.stride) + " does not fit windows of " +
                std::to_string(options.T) + " tokens");
    if (std::filesystem::path(file).extension() == ".bin") {
      fail(file + ": perplexity is scored on a text, not on a token file",
           "give the text it was made from; " + quantity("validation text") +
               " accepts token files");
    }
    std::string text = read_file(file);
    require(!text.empty(), file + " is empty", "give a text that is not empty");
    words_ = count_words(text);
    bytes_ = static_cast<std::int64_t>(text.size());
    lines_ = std::count(text.begin(), text.end(), '\n');
    if (options.detokenize) text = detokenize_wikitext(text);
    tokenize(text, tokenizer);
  }

  std::string protocol() const override {
    const auto number = [](std::int64_t n) { return std::to_string(n); };
    return std::string(options_.detokenize ? "WikiText reassembled (detokenized)"
                                           : "the text as it is") +
           ", as one stream, " +
           (has_start_token_ ? "after one <|endoftext|>"
                             : "its first token not scored (no <|endoftext|>)") +
           ": " + number(examples()) + " tokens, " + number(words_) + " words, " + number(lines_) +
           " line ends, " + number(bytes_) + " bytes of the file; windows of " +
           number(options_.T) + " tokens, stride " + number(options_.stride) +
           ": each token is scored once, after at least " +
           number(options_.T - options_.stride + 1) + " others except at the start";
  }

  std::int64_t examples() const override { return size() - 1; }

  std::int64_t rows() const override {
    const std::int64_t num_after_first_window = std::max<std::int64_t>(0, examples() - options_.T);
    return 1 + (num_after_first_window + options_.stride - 1) / options_.stride;
  }

  std::int64_t row_length(std::int64_t i) const override { return end_of(i) - begin_of(i); }

  EvalRow row(std::int64_t i) const override {
    const std::int64_t first_unscored = i == 0 ? 1 : end_of(i - 1);
    return {{tokens_.begin() + begin_of(i), tokens_.begin() + end_of(i)},
            end_of(i) - first_unscored};
  }

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override {
    double nll = 0;
    for (const RowScore& score : scores) nll += score.nll;
    const double mean = nll / static_cast<double>(examples());
    std::vector<EvalMetric> all = {{"token_nll", mean}, {"token_perplexity", std::exp(mean)}};
    const auto perplexity_per = [&](std::int64_t n) {
      return std::exp(nll / static_cast<double>(n));
    };
    if (words_ > 0) all.push_back({"word_perplexity", perplexity_per(words_)});
    if (options_.detokenize && words_ + lines_ > 0) {
      all.push_back({"word_and_line_end_perplexity", perplexity_per(words_ + lines_)});
    }
    all.push_back({"bits_per_byte", nll / std::log(2.0) / static_cast<double>(bytes_)});
    return all;
  }

 private:
  void tokenize(const std::string& text, const Tokenizer& tokenizer) {
    has_start_token_ = tokenizer.end_of_text().has_value();
    if (has_start_token_) tokens_.push_back(*tokenizer.end_of_text());
    try {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    } catch (const Error& error) {
      fail(file() + ": " + error.marked_text());
    }
    require(size() > 1, file() + " has too few tokens to score", "give a longer text");
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t begin_of(std::int64_t i) const { return i * options_.stride; }
  std::int64_t end_of(std::int64_t i) const {
    return std::min(begin_of(i) + options_.T + 1, size());
  }

  Options options_;
  std::vector<std::int32_t> tokens_;                // including the <|endoftext|>
  std::int64_t words_ = 0, lines_ = 0, bytes_ = 0;  // counts of the file
  bool has_start_token_ = false;
};

}  // namespace llmc
