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

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/eval/log_probs.h"
#include "llmc/eval/task.h"

namespace llmc {

// Means and variances of pairs (x, y) and of x - y, updated one pair at a time (Welford, 1962). If
// all pairs have x = y, everything about x - y is exactly 0.
class PairStatistics {
 public:
  void add(double x, double y) {
    ++count_;
    x_.add(x, count_);
    y_.add(y, count_);
    difference_.add(x - y, count_);
  }

  std::int64_t count() const { return count_; }
  double mean_x() const { return x_.mean; }
  double mean_y() const { return y_.mean; }
  double mean_difference() const { return difference_.mean; }

  // Standard error of the mean of a·x + b·y; NaN with fewer than two pairs. The covariance follows
  // from the variance of x - y, so that b = -a uses nothing else.
  double standard_error(double a, double b) const {
    if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
    const double sum = (a + b) * (a * x_.squares + b * y_.squares) - a * b * difference_.squares;
    if (sum < 0) return 0;  // rounding
    return std::sqrt(sum / static_cast<double>(count_ - 1) / static_cast<double>(count_));
  }

 private:
  struct Moments {
    double mean = 0, squares = 0;  // squares: the sum of squared deviations from the mean

    void add(double value, std::int64_t count) {
      const double deviation = value - mean;
      mean += deviation / static_cast<double>(count);
      squares += deviation * (value - mean);
    }
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
inline double kl_divergence(std::span<const float> base, std::span<const float> model) {
  double sum = 0;
  for (std::size_t v = 0; v < base.size(); ++v) {
    const auto log_p = static_cast<double>(base[v]), log_q = static_cast<double>(model[v]);
    const double p = std::exp(log_p), q = std::exp(log_q);
    sum += (p == 0 ? 0 : p * (log_p - log_q)) - p + q;
  }
  return sum;
}

class TokenComparison {
 public:
  // Adds one token. Throws if the two are not predictions of the same token over the same
  // vocabulary.
  void add(const TokenLogProbs& base, const TokenLogProbs& model) {
    require(base.token == model.token && base.log_probs.size() == model.log_probs.size(),
            "the two models do not predict the same tokens");
    nll_.add(-static_cast<double>(model.log_prob), -static_cast<double>(base.log_prob));
    const double kl = kl_divergence(base.log_probs, model.log_probs);
    kl_statistics_.add(kl, 0);
    kl_.push_back(kl);
    const double difference = std::exp(static_cast<double>(model.log_prob)) -
                              std::exp(static_cast<double>(base.log_prob));
    squares_ += difference * difference;
    // A NaN has no most likely token.
    const bool has_likeliest = !std::isnan(model.log_prob) && !std::isnan(base.log_prob);
    if (has_likeliest && base.likeliest == model.likeliest) ++num_agreeing_;
  }

  std::int64_t tokens() const { return nll_.count(); }

  // Throws if no token was added.
  ComparisonResult result() const {
    require(tokens() > 0, "no tokens to compare");
    const auto n = static_cast<double>(tokens());
    ComparisonResult result{.tokens = tokens()};
    result.nll = {nll_.mean_x(), nll_.standard_error(1, 0)};
    result.base_nll = {nll_.mean_y(), nll_.standard_error(0, 1)};
    const double perplexity = std::exp(nll_.mean_x()), base = std::exp(nll_.mean_y());
    result.perplexity = {perplexity, nll_.standard_error(perplexity, 0)};
    result.base_perplexity = {base, nll_.standard_error(0, base)};
    result.nll_difference = {nll_.mean_difference(), nll_.standard_error(1, -1)};
    result.perplexity_difference = {perplexity - base, nll_.standard_error(perplexity, -base)};
    result.kl = {kl_statistics_.mean_x(), kl_statistics_.standard_error(1, 0)};
    std::tie(result.kl_p99, result.kl_max) = largest_kl();
    const double agreement = static_cast<double>(num_agreeing_) / n;
    result.agreement = {agreement, std::sqrt(agreement * (1 - agreement) / (n - 1))};
    result.rms_probability_difference = std::sqrt(squares_ / n);
    return result;
  }

 private:
  // The 99th percentile (the smallest value that at least 99% of the values do not exceed) and the
  // maximum. Both are NaN if a value is.
  std::pair<double, double> largest_kl() const {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(kl_statistics_.mean_x())) return {nan, nan};
    std::vector<double> values = kl_;
    const std::size_t rank = (values.size() * 99 + 99) / 100;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank) - 1,
                     values.end());
    return {values[rank - 1], *std::max_element(values.begin(), values.end())};
  }

  PairStatistics nll_;            // x: model, y: base
  PairStatistics kl_statistics_;  // x
  std::vector<double> kl_;        // of each token
  double squares_ = 0;            // of the differences of the token's probability
  std::int64_t num_agreeing_ = 0;
};

// Compares all tokens of both sources. Calls `on_token(tokens so far)` after each one; if that is
// false, it stops. Throws if one source ends before the other.
inline TokenComparison compare_tokens(LogProbSource& base, LogProbSource& model,
                                      const std::function<bool(std::int64_t)>& on_token) {
  if (base.vocabulary_size() != model.vocabulary_size()) {
    fail("the base model has " + std::to_string(base.vocabulary_size()) + " tokens, the model " +
             std::to_string(model.vocabulary_size()),
         "compare models of one tokenizer");
  }
  TokenComparison comparison;
  for (;;) {
    const TokenLogProbs* ours = model.next();
    const TokenLogProbs* theirs = base.next();
    require((ours == nullptr) == (theirs == nullptr), "one model predicts more tokens");
    if (ours == nullptr) return comparison;
    comparison.add(*theirs, *ours);
    if (!on_token(comparison.tokens())) return comparison;
  }
}

// The result as rows of a table (report.h).
inline std::vector<EvalMetric> comparison_metrics(const ComparisonResult& result) {
  const auto metric = [](const char* name, const Estimate& estimate) {
    EvalMetric metric{name, estimate.value};
    if (!std::isnan(estimate.standard_error)) metric.standard_error = estimate.standard_error;
    return metric;
  };
  return {metric("token_nll", result.nll),
          metric("token_perplexity", result.perplexity),
          metric("base_token_nll", result.base_nll),
          metric("base_token_perplexity", result.base_perplexity),
          metric("token_nll_difference", result.nll_difference),
          metric("token_perplexity_difference", result.perplexity_difference),
          metric("ln_perplexity_ratio", result.nll_difference),
          metric("kl_divergence", result.kl),
          {"kl_divergence_p99", result.kl_p99},
          {"kl_divergence_max", result.kl_max},
          metric("top1_agreement", result.agreement),
          {"rms_probability_difference", result.rms_probability_difference}};
}

}  // namespace llmc
