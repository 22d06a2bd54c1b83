#include "llmc/eval/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>

#include "llmc/base/error.h"

namespace llmc {

void PairStatistics::add(double x, double y) {
  ++count_;
  x_.add(x, count_);
  y_.add(y, count_);
  difference_.add(x - y, count_);
}

double PairStatistics::standard_error(double a, double b) const {
  if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
  const double sum = (a + b) * (a * x_.squares + b * y_.squares) - a * b * difference_.squares;
  if (sum < 0) return 0;  // rounding
  return std::sqrt(sum / static_cast<double>(count_ - 1) / static_cast<double>(count_));
}

void PairStatistics::Moments::add(double value, std::int64_t count) {
  const double deviation = value - mean;
  mean += deviation / static_cast<double>(count);
  squares += deviation * (value - mean);
}

double kl_divergence(std::span<const float> base, std::span<const float> model) {
  double sum = 0;
  for (std::size_t v = 0; v < base.size(); ++v) {
    const auto log_p = static_cast<double>(base[v]), log_q = static_cast<double>(model[v]);
    const double p = std::exp(log_p), q = std::exp(log_q);
    sum += (p == 0 ? 0 : p * (log_p - log_q)) - p + q;
  }
  return sum;
}

void TokenComparison::add(const TokenLogProbs& base, const TokenLogProbs& model) {
  require(base.token == model.token && base.log_probs.size() == model.log_probs.size(),
          "the two models do not predict the same tokens");
  nll_.add(-static_cast<double>(model.log_prob), -static_cast<double>(base.log_prob));
  const double kl = kl_divergence(base.log_probs, model.log_probs);
  kl_statistics_.add(kl, 0);
  kl_.push_back(kl);
  const double difference =
      std::exp(static_cast<double>(model.log_prob)) - std::exp(static_cast<double>(base.log_prob));
  squares_ += difference * difference;
  // A NaN has no most likely token.
  const bool has_likeliest = !std::isnan(model.log_prob) && !std::isnan(base.log_prob);
  if (has_likeliest && base.likeliest == model.likeliest) ++num_agreeing_;
}

ComparisonResult TokenComparison::result() const {
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

std::pair<double, double> TokenComparison::largest_kl() const {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (std::isnan(kl_statistics_.mean_x())) return {nan, nan};
  std::vector<double> values = kl_;
  const std::size_t rank = (values.size() * 99 + 99) / 100;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank) - 1,
                   values.end());
  return {values[rank - 1], *std::max_element(values.begin(), values.end())};
}

TokenComparison compare_tokens(LogProbSource& base, LogProbSource& model,
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

std::vector<EvalMetric> comparison_metrics(const ComparisonResult& result) {
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
