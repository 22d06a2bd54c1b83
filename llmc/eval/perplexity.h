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
// too. Of a token file only the tokens are known, and the bytes if the tokenizer has a text for
// each token. WikiText's authors count a line's end as a word too (241211 words and 4358 lines are
// the 245569 tokens of WikiText-2's test set), and so do perplexities published for it;
// lm-evaluation-harness does not. Both are reported.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/eval/task.h"
#include "llmc/eval/wikitext.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/text_encoding.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class PerplexityTask : public EvalTask {
 public:
  struct Options {
    std::int64_t T = 0, stride = 0;      // 1 <= stride <= T
    std::int64_t limit = 0;              // maximum number of windows, from the start; 0: all
    bool detokenize = false;             // the file is WikiText: reassemble it before scoring
    bool standard_errors = false;        // report them for the means over tokens
    std::string source_name = "--eval";  // the flag or command that names the file, for errors
  };

  // Reads and tokenizes the file. Throws if it has nothing to score.
  PerplexityTask(const std::string& name, const std::string& file, const Tokenizer& tokenizer,
                 const Options& options)
      : EvalTask(name, file), options_(options) {
    require(options.stride >= 1 && options.stride <= options.T,
            "a stride of " + std::to_string(options.stride) + " does not fit windows of " +
                std::to_string(options.T) + " tokens");
    options.detokenize || !is_token_file(file) ? read_text(tokenizer) : read_tokens(tokenizer);
    require(size() > 1, file + " has too few tokens to score", "give a longer text");
    if (options.limit > 0 && options.limit < rows()) keep_first_windows(tokenizer);
  }

  std::string protocol() const override {
    return content_ + ", as one stream, " +
           (has_start_token_ ? "after one <|endoftext|>"
                             : "its first token not scored (no <|endoftext|>)") +
           ": " + counts_text() + "; windows of " + std::to_string(options_.T) +
           " tokens, stride " + std::to_string(options_.stride) + limit_text_ +
           ": each token is scored once, after at least " +
           std::to_string(options_.T - options_.stride + 1) + " others except at the start";
  }

  std::int64_t window() const { return options_.T; }
  std::int64_t stride() const { return options_.stride; }
  // All tokens, including the first one, which is not scored.
  std::span<const std::int32_t> tokens() const { return tokens_; }

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
    double nll = 0, squares = 0;
    for (const RowScore& score : scores) {
      nll += score.nll;
      squares += score.nll_squares;
    }
    const double mean = nll / static_cast<double>(examples());
    std::vector<EvalMetric> all = {{"token_nll", mean}, {"token_perplexity", std::exp(mean)}};
    if (options_.standard_errors && examples() > 1) {
      // Tokens as independent samples; the delta method for the exponential (comparison.h).
      const auto n = static_cast<double>(examples());
      const double error = std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1));
      all[0].standard_error = error;
      all[1].standard_error = std::exp(mean) * error;
    }
    const auto perplexity_per = [&](std::int64_t n) {
      return std::exp(nll / static_cast<double>(n));
    };
    if (words_ > 0) all.push_back({"word_perplexity", perplexity_per(words_)});
    if (options_.detokenize && words_ + lines_ > 0) {
      all.push_back({"word_and_line_end_perplexity", perplexity_per(words_ + lines_)});
    }
    if (bytes_ > 0) {
      all.push_back({"bits_per_byte", nll / std::log(2.0) / static_cast<double>(bytes_)});
    }
    return all;
  }

 private:
  void read_text(const Tokenizer& tokenizer) {
    std::string text = read_file(file());
    warn_about_encoding(text, file());
    require(!text.empty(), file() + " is empty", "give a text that is not empty");
    if (options_.detokenize && is_token_file(file())) {
      fail(file() + " is a token file: WikiText's words are unknown",
           "give the text, or score the tokens as perplexity:" + file());
    }
    words_ = count_words(text);
    bytes_ = static_cast<std::int64_t>(text.size());
    lines_ = std::count(text.begin(), text.end(), '\n');
    content_ = options_.detokenize ? "WikiText reassembled (detokenized)" : "the text as it is";
    if (options_.detokenize) text = detokenize_wikitext(text);
    has_start_token_ = tokenizer.end_of_text().has_value();
    if (has_start_token_) tokens_.push_back(*tokenizer.end_of_text());
    try {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    } catch (const Error& error) {
      fail(file() + ": " + error.marked_text());
    }
  }

  void read_tokens(const Tokenizer& tokenizer) {
    content_ = "the tokens of the file";
    const std::optional<std::int32_t> end_of_text = tokenizer.end_of_text();
    const TokenSource source =
        SourceReader(tokenizer, {}).read({{file()}, {}}, options_.source_name).front();
    std::int32_t first = -1;
    if (source.size() > 0) source.copy(0, 1, &first);
    has_start_token_ = end_of_text.has_value();
    if (has_start_token_ && first != *end_of_text) tokens_.push_back(*end_of_text);
    const std::size_t begin = tokens_.size();
    tokens_.resize(begin + static_cast<std::size_t>(source.size()));
    source.copy(0, source.size(), tokens_.data() + begin);
    if (tokenizer.has_text()) bytes_ = text_bytes(tokenizer);
  }

  // Keeps the tokens of the first `limit` windows. The words and bytes are those of their text;
  // they are unknown for a reassembled text, whose file has others.
  void keep_first_windows(const Tokenizer& tokenizer) {
    limit_text_ = ", only the first " + std::to_string(options_.limit) + " of " +
                  std::to_string(rows()) + " windows";
    tokens_.resize(static_cast<std::size_t>(end_of(options_.limit - 1)));
    const bool has_words = words_ > 0;
    words_ = lines_ = bytes_ = 0;
    if (options_.detokenize || !tokenizer.has_text()) return;
    bytes_ = text_bytes(tokenizer);
    if (!has_words) return;
    const std::string text = tokenizer.decode(std::span(tokens_).subspan(has_start_token_ ? 1 : 0));
    words_ = count_words(text);
    lines_ = std::count(text.begin(), text.end(), '\n');
  }

  // Bytes of the text of the tokens, without end-of-text.
  std::int64_t text_bytes(const Tokenizer& tokenizer) const {
    std::int64_t bytes = 0;
    for (const std::int32_t& token : tokens_) {
      if (token == tokenizer.end_of_text()) continue;
      bytes += std::ssize(tokenizer.decode(std::span(&token, 1)));
    }
    return bytes;
  }

  std::string counts_text() const {
    const auto number = [](std::int64_t n) { return std::to_string(n); };
    std::string text = number(examples()) + " tokens";
    if (words_ > 0) text += ", " + number(words_) + " words, " + number(lines_) + " line ends";
    if (bytes_ > 0) text += ", " + number(bytes_) + (words_ > 0 ? " bytes of the file" : " bytes");
    return text;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t begin_of(std::int64_t i) const { return i * options_.stride; }
  std::int64_t end_of(std::int64_t i) const {
    return std::min(begin_of(i) + options_.T + 1, size());
  }

  Options options_;
  std::vector<std::int32_t> tokens_;                // including the <|endoftext|>
  std::string content_;                             // what is scored, for the protocol
  std::string limit_text_;                          // the part that is scored, if it is not all
  std::int64_t words_ = 0, lines_ = 0, bytes_ = 0;  // counts of the text; 0: unknown
  bool has_start_token_ = false;
};

}  // namespace llmc
