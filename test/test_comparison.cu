// Comparison of the predictions of two models, token by token, against the definitions, and the
// log-probabilities of a model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "llmc/eval/comparison.h"
#include "llmc/eval/logits_scorer.h"
#include "llmc/eval/row_scorer.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "test/model_rig.h"
#include "test/predictions.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double x : values) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

RunShape shape_of(std::int64_t B, std::int64_t T, std::int64_t logits_rows = 4096) {
  RunShape run;
  run.B = B;
  run.T = T;
  run.training = false;
  run.logits_rows = logits_rows;
  return run;
}

}  // namespace

TEST_SUITE("comparison") {
  TEST_CASE("the metrics are those of the definition") {
    const Pair pair = random_pair(203, 37, 0.3f);
    const ComparisonResult result = compare(pair.base, pair.model);
    std::vector<double> nll, base_nll, difference, kl, squares;
    double num_agreeing = 0;
    for (std::size_t i = 0; i < pair.base.size(); ++i) {
      const Prediction &base = pair.base[i], &model = pair.model[i];
      nll.push_back(-static_cast<double>(model.log_prob));
      base_nll.push_back(-static_cast<double>(base.log_prob));
      difference.push_back(nll.back() - base_nll.back());
      double divergence = 0;
      for (std::size_t v = 0; v < base.log_probs.size(); ++v) {
        const auto p = static_cast<double>(base.log_probs[v]);
        divergence += std::exp(p) * (p - static_cast<double>(model.log_probs[v]));
      }
      kl.push_back(divergence);
      squares.push_back(std::pow(std::exp(-nll.back()) - std::exp(-base_nll.back()), 2));
      num_agreeing += base.likeliest == model.likeliest ? 1 : 0;
    }
    const double n = 203, root = std::sqrt(n), tight = 1e-12;
    CHECK(result.tokens == 203);
    CHECK(std::abs(result.nll.value / mean_of(nll) - 1) < tight);
    CHECK(std::abs(result.nll.standard_error / (deviation_of(nll) / root) - 1) < tight);
    CHECK(std::abs(result.perplexity.value / std::exp(mean_of(nll)) - 1) < tight);
    CHECK(std::abs(result.base_perplexity.value / std::exp(mean_of(base_nll)) - 1) < tight);
    CHECK(std::abs(result.nll_difference.value - mean_of(difference)) < tight);
    CHECK(std::abs(result.nll_difference.standard_error / (deviation_of(difference) / root) - 1) <
          1e-10);
    CHECK(std::abs(result.perplexity_difference.value -
                   (std::exp(mean_of(nll)) - std::exp(mean_of(base_nll)))) < 1e-10);
    // The definition's sums depend on the rounding of the logarithms to fp32.
    CHECK(std::abs(result.kl.value - mean_of(kl)) < 1e-6);
    CHECK(std::abs(result.kl.standard_error / (deviation_of(kl) / root) - 1) < 1e-4);
    std::sort(kl.begin(), kl.end());
    CHECK(std::abs(result.kl_max - kl.back()) < 1e-6);
    CHECK(std::abs(result.kl_p99 - kl[200]) < 1e-6);  // 201 of 203 values are 99.01%
    const double agreement = num_agreeing / n;
    CHECK(result.agreement.value == agreement);
    CHECK(agreement > 0.5);
    CHECK(agreement < 1);
    CHECK(std::abs(result.agreement.standard_error -
                   std::sqrt(agreement * (1 - agreement) / (n - 1))) < tight);
    CHECK(std::abs(result.rms_probability_difference - std::sqrt(mean_of(squares))) < tight);
  }

  TEST_CASE("standard errors agree with bootstrap resamples of the tokens") {
    const Pair pair = random_pair(400, 20, 0.5f);
    const ComparisonResult result = compare(pair.base, pair.model);
    constexpr int kResamples = 200;
    std::mt19937 random(11);
    std::uniform_int_distribution<std::size_t> draw(0, pair.base.size() - 1);
    std::vector<std::vector<double>> values(6);
    const auto estimates = [](const ComparisonResult& r) {
      return std::vector<Estimate>{r.nll, r.perplexity, r.nll_difference, r.perplexity_difference,
                                   r.kl,  r.agreement};
    };
    for (int i = 0; i < kResamples; ++i) {
      TokenComparison resample;
      for (std::size_t k = 0; k < pair.base.size(); ++k) {
        const std::size_t token = draw(random);
        resample.add(pair.base[token].view(), pair.model[token].view());
      }
      const auto all = estimates(resample.result());
      for (std::size_t m = 0; m < all.size(); ++m) values[m].push_back(all[m].value);
    }
    // The deviation of R normal values has a relative standard error of 1 / sqrt(2 R), 5% here.
    const double tolerance = 4 / std::sqrt(2.0 * kResamples);
    const auto all = estimates(result);
    for (std::size_t m = 0; m < all.size(); ++m) {
      CAPTURE(m);
      CHECK(std::abs(deviation_of(values[m]) / all[m].standard_error - 1) < tolerance);
    }
  }

  TEST_CASE("equal predictions differ by exactly zero, and rounding never makes KL negative") {
    const Predictions base = random_pair(50, 300, 0).base;
    const ComparisonResult result = compare(base, base);
    CHECK(result.nll_difference.value == 0);
    CHECK(result.nll_difference.standard_error == 0);
    CHECK(result.perplexity_difference.value == 0);
    CHECK(result.perplexity_difference.standard_error == 0);
    CHECK(result.kl.value == 0);
    CHECK(result.kl.standard_error == 0);
    CHECK(result.kl_max == 0);
    CHECK(result.agreement.value == 1);
    CHECK(result.rms_probability_difference == 0);
    Predictions rounded = base;
    for (Prediction& prediction : rounded) {
      for (float& x : prediction.log_probs) x = std::nextafter(x, -100.0f);
    }
    for (std::size_t i = 0; i < base.size(); ++i) {
      const double kl = kl_divergence(base[i].log_probs, rounded[i].log_probs);
      CHECK(kl > -1e-15);
      CHECK(kl < 1e-12);
    }
  }

  TEST_CASE("a NaN makes the means NaN, and a token of probability 0 the divergence infinite") {
    Pair pair = random_pair(3, 8, 0.1f);
    Pair broken = pair;
    for (float& x : broken.model[1].log_probs) x = std::nanf("");
    broken.model[1].log_prob = std::nanf("");
    const ComparisonResult result = compare(broken.base, broken.model);
    CHECK(std::isnan(result.nll.value));
    CHECK(std::isnan(result.kl.value));
    CHECK(std::isnan(result.kl_p99));
    CHECK(std::isnan(result.kl_max));
    CHECK(result.agreement.value < 1);
    const float infinity = std::numeric_limits<float>::infinity();
    pair.model[2].log_probs[0] = -infinity;
    CHECK(std::isinf(compare(pair.base, pair.model).kl.value));
    pair.base[2].log_probs[0] = -infinity;  // no prediction of either: no difference
    CHECK(std::isfinite(compare(pair.base, pair.model).kl.value));
  }

  TEST_CASE("one token has no standard errors, no token and other tokens are errors") {
    const Pair pair = random_pair(2, 5, 0.1f);
    const auto metrics = comparison_metrics(compare({pair.base[0]}, {pair.model[0]}));
    CHECK(metrics[0].name == "token_nll");
    for (const EvalMetric& metric : metrics) CHECK(!metric.standard_error);
    CHECK(contains(complaint([] { TokenComparison().result(); }), "no tokens"));
    CHECK(contains(complaint([&] { compare({pair.base[0]}, pair.model); }), "more tokens"));
    Predictions other = pair.model;
    other[1].token = (other[1].token + 1) % 5;
    CHECK(contains(complaint([&] { compare(pair.base, other); }), "same tokens"));
    const Predictions wider = random_pair(2, 6, 0.1f).base;
    const std::string message = complaint([&] { compare(wider, pair.model); });
    CHECK_MESSAGE(contains(message, "the base model has 6 tokens, the model 5"), message);
    StoredPredictions base(pair.base), model(pair.model);
    CHECK(compare_tokens(base, model, [](std::int64_t) { return false; }).tokens() == 1);
  }
}

TEST_SUITE("logits_scorer") {
  TEST_CASE_TEMPLATE("log-probabilities give the scores of RowScorer", T, float, bf16) {
    const Fixture fixture = load_fixture("odd");
    const std::int64_t length = fixture.integer("T"), V = fixture.config().V;
    const TokenText text(V, tiny_shapes() ? 2 * length : 9 * length + 5, 3);
    for (const std::int64_t B : {1, 4}) {
      const PerplexityTask task = text.task(length, length / 2);
      ModelRig<T> rig(engine_config(fixture.config()), shape_of(B, length, 5));
      rig.set_parameters(fixture.parameters());
      Exchange exchange;
      RowScorer rows(rig.runner(), exchange);
      const auto scores = rows.score(task, [](std::int64_t, std::int64_t) { return true; });
      LogitsScorer scorer(rig.runner(), task);
      RowScoreSums sums(task);
      ObservedSource source(scorer, [&](const TokenLogProbs& prediction) {
        sums.add(-static_cast<double>(prediction.log_prob));
      });
      const Predictions predictions = predictions_of(source);
      REQUIRE(std::ssize(predictions) == task.examples());
      double nll = 0, squares = 0, expected = 0, expected_squares = 0;
      for (std::size_t i = 0; i < predictions.size(); ++i) {
        const Prediction& p = predictions[i];
        CHECK(p.token == task.tokens()[i + 1]);
        CHECK(p.log_prob == p.log_probs[p.token]);
        CHECK(p.log_probs[p.likeliest] ==
              *std::max_element(p.log_probs.begin(), p.log_probs.end()));
        double sum = 0;
        for (const float x : p.log_probs) sum += std::exp(static_cast<double>(x));
        CHECK(std::abs(sum - 1) < 1e-6);
        nll -= static_cast<double>(p.log_prob);
        squares += static_cast<double>(p.log_prob) * static_cast<double>(p.log_prob);
      }
      for (const RowScore& score : scores) {
        expected += score.nll;
        expected_squares += score.nll_squares;
      }
      REQUIRE(sums.scores().size() == scores.size());
      for (std::size_t i = 0; i < scores.size(); ++i) {
        CHECK(std::abs(sums.scores()[i].nll / scores[i].nll - 1) < 3e-6);
        CHECK(std::abs(sums.scores()[i].nll_squares / scores[i].nll_squares - 1) < 3e-6);
      }
      CHECK(std::abs(nll / expected - 1) < 1e-6);
      CHECK(std::abs(squares / expected_squares - 1) < 1e-6);
      if (tiny_shapes()) break;
    }
  }

  TEST_CASE(
      "a model compared with itself differs by exactly zero, and with another one it does "
      "not") {
    const Fixture fixture = load_fixture("odd");
    const std::int64_t length = fixture.integer("T");
    const PerplexityTask task =
        TokenText(fixture.config().V, 4 * length, 4).task(length, length / 2);
    const auto compare_models = [&](auto change) {
      ModelRig<float> base(engine_config(fixture.config()), shape_of(2, length));
      ModelRig<float> model(engine_config(fixture.config()), shape_of(2, length));
      auto parameters = fixture.parameters();
      base.set_parameters(parameters);
      change(parameters);
      model.set_parameters(parameters);
      LogitsScorer base_scorer(base.runner(), task), scorer(model.runner(), task);
      return compare_tokens(base_scorer, scorer, always).result();
    };
    const ComparisonResult same = compare_models([](auto&) {});
    CHECK(same.tokens == task.examples());
    CHECK(same.nll_difference.value == 0);
    CHECK(same.perplexity_difference.value == 0);
    CHECK(same.kl.value == 0);
    CHECK(same.kl_max == 0);
    CHECK(same.agreement.value == 1);
    CHECK(same.rms_probability_difference == 0);
    const ComparisonResult other = compare_models([](auto& parameters) {
      for (double& x : parameters.at("ln_f.weight")) x *= 0.9;
    });
    CHECK(other.nll_difference.value != 0);
    CHECK(other.kl.value > 0);
    CHECK(other.rms_probability_difference > 0);
  }

  TEST_CASE("a text reports the standard errors of its perplexity if they are requested") {
    const TokenText text(50, 100, 6);
    const PerplexityTask plain = text.task(8, 8);
    PerplexityTask::Options options{.T = 8, .stride = 8, .standard_errors = true};
    const PerplexityTask task("x", plain.file(), IdTokenizer(50), options);
    std::vector<RowScore> scores(static_cast<std::size_t>(task.rows()));
    std::vector<double> nll;
    for (std::int64_t i = 0; i < task.rows(); ++i) {
      for (std::int64_t k = 0; k < task.row(i).num_scored; ++k) {
        nll.push_back(1 + 0.3 * static_cast<double>((i * 7 + k * 5) % 11));
        scores[i].nll += nll.back();
        scores[i].nll_squares += nll.back() * nll.back();
      }
    }
    CHECK(!plain.metrics(scores)[0].standard_error);
    const auto metrics = task.metrics(scores);
    const double error = deviation_of(nll) / std::sqrt(static_cast<double>(nll.size()));
    CHECK(std::abs(*metrics[0].standard_error / error - 1) < 1e-12);
    CHECK(std::abs(*metrics[1].standard_error / (std::exp(mean_of(nll)) * error) - 1) < 1e-12);
  }
}
