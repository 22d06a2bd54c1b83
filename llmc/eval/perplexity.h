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

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmc/eval/task.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class PerplexityTask : public EvalTask {
 public:
  struct Options {
    std::int64_t T = 0, stride = 0;          // 1 <= stride <= T
    std::int64_t limit = 0;                  // maximum number of windows, from the start; 0: all
    BinFormat bin_format = BinFormat::llmc;  // of a token file
    bool detokenize = false;                 // the file is WikiText: reassemble it before scoring
    bool standard_errors = false;            // report them for the means over tokens
    std::string source_name = "--eval";      // the flag or command that names the file, for errors
  };

  // Reads and tokenizes the file. Throws if it has nothing to score.
  PerplexityTask(const std::string& name, const std::string& file, const Tokenizer& tokenizer,
                 const Options& options);

  std::string protocol() const override;

  std::int64_t window() const { return options_.T; }
  std::int64_t stride() const { return options_.stride; }
  // All tokens, including the first one, which is not scored.
  std::span<const std::int32_t> tokens() const { return tokens_; }

  std::int64_t examples() const override { return size() - 1; }

  std::int64_t rows() const override;

  std::int64_t row_length(std::int64_t i) const override { return end_of(i) - begin_of(i); }

  EvalRow row(std::int64_t i) const override;

  std::vector<EvalMetric> metrics(std::span<const RowScore> scores) const override;

 private:
  void read_text(const Tokenizer& tokenizer);

  void read_tokens(const Tokenizer& tokenizer);

  // Keeps the tokens of the first `limit` windows. The words and bytes are those of their text;
  // they are unknown for a reassembled text, whose file has others.
  void keep_first_windows(const Tokenizer& tokenizer);

  // Bytes of the text of the tokens, without end-of-text.
  std::int64_t text_bytes(const Tokenizer& tokenizer) const;

  std::string counts_text() const;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t begin_of(std::int64_t i) const { return i * options_.stride; }
  std::int64_t end_of(std::int64_t i) const;

  Options options_;
  std::vector<std::int32_t> tokens_;                // including the <|endoftext|>
  std::string content_;                             // what is scored, for the protocol
  std::string limit_text_;                          // the part that is scored, if it is not all
  std::int64_t words_ = 0, lines_ = 0, bytes_ = 0;  // counts of the text; 0: unknown
  bool has_start_token_ = false;
};

}  // namespace llmc
