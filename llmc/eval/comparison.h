// Compares the predictions of a model with those of a base model, token by token: how much did
// quantisation, pruning or a change of the code move the model?
//
// For every scored token both models predict a distribution over the vocabulary, p of the base and
// q of the model. Reported are, as means over tokens with standard errors:
//
//   nll           -ln q(token), and the perplexity exp(mean nll)
//   difference    ln p(token) - ln q(token); its mean is ln(perplexity of model / of base)
//   KL            sum over v of p(v) ln(p(v) / q(v)), which is KL(base || model)
//   agreement     whether both have the same most likely token
//
// Differences are paired: both models predict the same tokens, so the standard error of a mean
// difference is that of the differences, far below that of either mean. Standard errors treat
// tokens as independent samples. Nearby tokens of a text are not, so they are lower bounds.
// Those of perplexities follow from the delta method: f(mean) has |f'(mean)| times its error.
//
// The KL of a token is summed as p ln(p / q) - p + q. The added terms sum to zero for
// distributions, and make every addend at least 0. So logarithms that were rounded (to fp32, or to
// 16 bits in a base log) cannot make the sum negative, and an error d of a logarithm adds p d^2 / 2
// instead of p d. Two equal distributions have exactly 0. Sums are in fp64.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "llmc/eval/log_probs.h"
#include "llmc/eval/task.h"

namespace llmc {

// Means and variances of pairs (x, y) and of x - y, updated one pair at a time (Welford, 1962). If
// all pairs have x = y, everything about x - y is exactly 0.
class PairStatistics {
 public:
  void add(double x, double y);

  std::int64_t count() const { return count_; }
  double mean_x() const { return x_.mean; }
  double mean_y() const { return y_.mean; }
  double mean_difference() const { return difference_.mean; }

  // Standard error of the mean of a·x + b·y; NaN with fewer than two pairs. The covariance follows
  // from the variance of x - y, so that b = -a uses nothing else.
  double standard_error(double a, double b) const;

 private:
  struct Moments {
    double mean = 0, squares = 0;  // squares: the sum of squared deviations from the mean

    void add(double value, std::int64_t count);
  };

  std::int64_t count_ = 0;
  Moments x_, y_, difference_;
};

// A mean with its standard error, which is NaN for fewer than two tokens.
struct Estimate {
  double value = 0, standard_error = 0;
};

struct ComparisonResult {
  std::int64_t tokens = 0;
  Estimate nll{}, base_nll{};                // nats per token
  Estimate perplexity{}, base_perplexity{};  // per token
  Estimate nll_difference{};                 // model - base; ln(perplexity ratio)
  Estimate perplexity_difference{};          // model - base
  Estimate kl{};                             // KL(base || model), nats per token
  double kl_p99 = 0, kl_max = 0;             // over tokens
  Estimate agreement{};                      // fraction of tokens with the same most likely token
  double rms_probability_difference = 0;     // of the text's tokens
};

// KL(base || model) of one token from log-probabilities (V) of both.
double kl_divergence(std::span<const float> base, std::span<const float> model);

class TokenComparison {
 public:
  // Adds one token. Throws if the two are not predictions of the same token over the same
  // vocabulary.
  void add(const TokenLogProbs& base, const TokenLogProbs& model);

  std::int64_t tokens() const { return nll_.count(); }

  // Throws if no token was added.
  ComparisonResult result() const;

 private:
  // The 99th percentile (the smallest value that at least 99% of the values do not exceed) and the
  // maximum. Both are NaN if a value is.
  std::pair<double, double> largest_kl() const;

  PairStatistics nll_;            // x: model, y: base
  PairStatistics kl_statistics_;  // x
  std::vector<double> kl_;        // of each token
  double squares_ = 0;            // of the differences of the token's probability
  std::int64_t num_agreeing_ = 0;
};

// Compares all tokens of both sources. Calls `on_token(tokens so far)` after each one; if that is
// false, it stops. Throws if one source ends before the other.
TokenComparison compare_tokens(LogProbSource& base, LogProbSource& model,
                               const std::function<bool(std::int64_t)>& on_token);

// The result as rows of a table (report.h).
std::vector<EvalMetric> comparison_metrics(const ComparisonResult& result);

}  // namespace llmc
