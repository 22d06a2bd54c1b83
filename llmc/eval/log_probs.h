// Log-probabilities over the whole vocabulary, one scored token at a time: the interface between
// what has them (a model: logits_scorer.h, a file: base_log.h) and what compares them
// (comparison.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace llmc {

// The prediction for one scored token.
struct TokenLogProbs {
  std::int32_t token = 0;            // the token of the text
  std::int32_t likeliest = 0;        // the most likely token, the smallest id of several
  float log_prob = 0;                // natural logarithm of the probability of `token`
  std::span<const float> log_probs;  // (V) natural logarithms of all probabilities
};

// The predictions for the scored tokens of a text, in order.
class LogProbSource {
 public:
  LogProbSource() = default;
  virtual ~LogProbSource() = default;
  LogProbSource(const LogProbSource&) = delete;
  LogProbSource& operator=(const LogProbSource&) = delete;

  virtual std::int64_t vocabulary_size() const = 0;
  // Returns the prediction for the next token, or null after the last one. The result is valid
  // until the next call.
  virtual const TokenLogProbs* next() = 0;
};

// A source that also passes each prediction to a function.
class ObservedSource : public LogProbSource {
 public:
  // `source` must outlive this object.
  ObservedSource(LogProbSource& source, std::function<void(const TokenLogProbs&)> on_token)
      : source_(source), on_token_(std::move(on_token)) {}

  std::int64_t vocabulary_size() const override { return source_.vocabulary_size(); }

  const TokenLogProbs* next() override;

 private:
  LogProbSource& source_;
  std::function<void(const TokenLogProbs&)> on_token_;
};

// Writes the log-probabilities of `logits` (V), computed in fp64 and rounded to fp32, to
// `log_probs` (V). If a logit is NaN, all results are NaN.
void log_softmax(std::span<const float> logits, std::vector<float>& log_probs);

}  // namespace llmc
