#include "llmc/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>

#include "llmc/base/error.h"
#include "llmc/eval/wikitext.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/text_notices.h"
#include "llmc/io/data/token_source.h"

namespace llmc {

PerplexityTask::PerplexityTask(const std::string& name, const std::string& file,
                               const Tokenizer& tokenizer, const Options& options)
    : EvalTask(name, file), options_(options) {
  require(options.stride >= 1 && options.stride <= options.T,
          "a stride of " + std::to_string(options.stride) + " does not fit windows of " +
              std::to_string(options.T) + " tokens");
  options.detokenize || !is_token_file(file) ? read_text(tokenizer) : read_tokens(tokenizer);
  require(size() > 1, file + " has too few tokens to score", "give a longer text");
  if (options.limit > 0 && options.limit < rows()) keep_first_windows(tokenizer);
}

std::string PerplexityTask::protocol() const {
  return content_ + ", as one stream, " +
         (has_start_token_ ? "after one <|endoftext|>"
                           : "its first token not scored (no <|endoftext|>)") +
         ": " + counts_text() + "; windows of " + std::to_string(options_.T) + " tokens, stride " +
         std::to_string(options_.stride) + limit_text_ +
         ": each token is scored once, after at least " +
         std::to_string(options_.T - options_.stride + 1) + " others except at the start";
}

std::int64_t PerplexityTask::rows() const {
  const std::int64_t num_after_first_window = std::max<std::int64_t>(0, examples() - options_.T);
  return 1 + (num_after_first_window + options_.stride - 1) / options_.stride;
}

EvalRow PerplexityTask::row(std::int64_t i) const {
  const std::int64_t first_unscored = i == 0 ? 1 : end_of(i - 1);
  return {{tokens_.begin() + begin_of(i), tokens_.begin() + end_of(i)}, end_of(i) - first_unscored};
}

std::vector<EvalMetric> PerplexityTask::metrics(std::span<const RowScore> scores) const {
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

void PerplexityTask::read_text(const Tokenizer& tokenizer) {
  const TextInput input(file());
  std::string_view text = input.text();
  TextNotices notices({.json_lines = "score the tokens of its texts, which tokenize writes",
                       .end_of_text =
                           "score the tokens of its documents, which tokenize --split-on "
                           "'<|endoftext|>' writes"});
  notices.examine(text, file(), {.kind = DocumentFormat::Kind::text, .separator = {}});
  notices.print();
  require(!text.empty(), file() + " is empty", "give a text that is not empty");
  if (options_.detokenize && is_token_file(file())) {
    fail(file() + " is a token file: WikiText's words are unknown",
         "give the text, or score the tokens as perplexity:" + file());
  }
  words_ = count_words(text);
  bytes_ = static_cast<std::int64_t>(text.size());
  lines_ = std::count(text.begin(), text.end(), '\n');
  content_ = options_.detokenize ? "WikiText reassembled (detokenized)" : "the text as it is";
  const std::string reassembled = options_.detokenize ? detokenize_wikitext(text) : "";
  if (options_.detokenize) text = reassembled;
  has_start_token_ = tokenizer.end_of_text().has_value();
  if (has_start_token_) tokens_.push_back(*tokenizer.end_of_text());
  try {
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  } catch (const Error& error) {
    fail(file() + ": " + error.marked_text());
  }
}

void PerplexityTask::read_tokens(const Tokenizer& tokenizer) {
  content_ = "the tokens of the file";
  const std::optional<std::int32_t> end_of_text = tokenizer.end_of_text();
  const TokenSource source = SourceReader(tokenizer, {.bin = options_.bin_format})
                                 .read({{file()}, {}}, options_.source_name)
                                 .front();
  std::int32_t first = -1;
  if (source.size() > 0) source.copy(0, 1, &first);
  has_start_token_ = end_of_text.has_value();
  if (has_start_token_ && first != *end_of_text) tokens_.push_back(*end_of_text);
  const std::size_t begin = tokens_.size();
  tokens_.resize(begin + static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), tokens_.data() + begin);
  if (tokenizer.has_text()) bytes_ = text_bytes(tokenizer);
}

void PerplexityTask::keep_first_windows(const Tokenizer& tokenizer) {
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

std::int64_t PerplexityTask::text_bytes(const Tokenizer& tokenizer) const {
  std::int64_t bytes = 0;
  for (const std::int32_t& token : tokens_) {
    if (token == tokenizer.end_of_text()) continue;
    bytes += std::ssize(tokenizer.decode(std::span(&token, 1)));
  }
  return bytes;
}

std::string PerplexityTask::counts_text() const {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  std::string text = number(examples()) + " tokens";
  if (words_ > 0) text += ", " + number(words_) + " words, " + number(lines_) + " line ends";
  if (bytes_ > 0) text += ", " + number(bytes_) + (words_ > 0 ? " bytes of the file" : " bytes");
  return text;
}

std::int64_t PerplexityTask::end_of(std::int64_t i) const {
  return std::min(begin_of(i) + options_.T + 1, size());
}

}  // namespace llmc
