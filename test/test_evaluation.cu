// Scores that a model computes for evaluation rows against the fp64 oracle, which computes one row
// at a time, without padding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/eval/row_scorer.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

class ListedRows : public EvalTask {
 public:
  explicit ListedRows(std::vector<EvalRow> rows) : EvalTask("listed", ""), rows_(std::move(rows)) {}
  std::string protocol() const override { return ""; }
  std::int64_t examples() const override { return rows(); }
  std::int64_t rows() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t row_length(std::int64_t i) const override {
    return static_cast<std::int64_t>(rows_[i].tokens.size());
  }
  EvalRow row(std::int64_t i) const override { return rows_[i]; }
  bool needs_greedy() const override { return true; }
  std::vector<EvalMetric> metrics(std::span<const RowScore>) const override { return {}; }

 private:
  std::vector<EvalRow> rows_;
};

// Predictions for the tokens of a row from the second on, by the definition.
struct Predictions {
  std::vector<double> nll;
  std::vector<std::int32_t> likeliest;
  double margin = 0;  // smallest difference between the two largest logits of a token
};

Predictions predict(const Fixture& fixture, const oracle::Tensors& parameters,
                    const std::vector<std::int32_t>& tokens) {
  const oracle::Config config = fixture.config();
  const auto T = static_cast<oracle::Index>(tokens.size()) - 1;
  const oracle::Batch batch{1, T, {tokens.begin(), tokens.end() - 1}, {}, {}};
  const oracle::Vec logits = oracle::forward(config, parameters, batch).logits;
  Predictions predictions{{}, {}, 1e9};
  for (oracle::Index t = 0; t < T; ++t) {
    std::vector<double> row(logits.begin() + t * config.V, logits.begin() + (t + 1) * config.V);
    double sum = 0;
    for (const double x : row) sum += std::exp(x);
    predictions.nll.push_back(std::log(sum) - row[tokens[t + 1]]);
    predictions.likeliest.push_back(
        static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
    predictions.margin = std::min(predictions.margin, row[0] - row[1]);
  }
  return predictions;
}

struct Case {
  std::vector<EvalRow> rows;
  std::vector<double> nll;
  std::vector<bool> greedy;
};

// Rows of all lengths from 2 to T + 1 tokens. Every other row ends with the oracle's own likeliest
// tokens; in half of these the last token is changed. Rows whose two largest logits are too close
// for fp32 are skipped.
Case make_case(const Fixture& fixture, std::int64_t T, std::int64_t count) {
  const oracle::Tensors parameters = fixture.parameters();
  Case sample;
  for (std::uint64_t seed = 0; std::ssize(sample.rows) < count; ++seed) {
    const auto length = static_cast<std::int64_t>(2 + (seed * 7) % static_cast<std::uint64_t>(T));
    EvalRow row{random_ints(length, 100 + seed, fixture.config().V), 0};
    row.num_scored =
        1 + static_cast<std::int64_t>(seed / 2) % std::min<std::int64_t>(length - 1, 4);
    for (std::int64_t at = length - row.num_scored; seed % 2 == 0 && at < length; ++at) {
      row.tokens[at] = predict(fixture, parameters, row.tokens).likeliest[at - 1];
    }
    if (seed % 4 == 0) row.tokens.back() = (row.tokens.back() + 1) % 200;
    const Predictions p = predict(fixture, parameters, row.tokens);
    if (p.margin < 1e-3) continue;
    double nll = 0;
    bool greedy = true;
    for (std::int64_t at = length - row.num_scored; at < length; ++at) {
      nll += p.nll[at - 1];
      greedy = greedy && p.likeliest[at - 1] == row.tokens[at];
    }
    sample.rows.push_back(row);
    sample.nll.push_back(nll);
    sample.greedy.push_back(greedy);
  }
  return sample;
}

struct Scores {
  std::vector<double> nll;
  std::vector<bool> greedy;
  bool operator==(const Scores&) const = default;
};

template <class T>
Scores score(const Fixture& fixture, const std::vector<EvalRow>& rows, std::int64_t B,
             std::int64_t length) {
  RunShape run;
  run.B = B;
  run.T = length;
  run.training = false;
  ModelRig<T> rig(engine_config(fixture.config()), run);
  rig.set_parameters(fixture.parameters());
  Exchange exchange;
  RowScorer scorer(rig.runner(), exchange);
  Scores all;
  std::int64_t last = 0, last_total = 0;
  const auto row_scores =
      scorer.score(ListedRows(rows), [&](std::int64_t done, std::int64_t total) {
        CHECK(done > last);
        last = done;
        last_total = total;
        return true;
      });
  CHECK(last == last_total);
  int batches = 0;
  const auto stop = [&](std::int64_t, std::int64_t) { return ++batches > 1; };
  CHECK(scorer.score(ListedRows(rows), stop).empty());
  CHECK(batches == 1);
  for (const RowScore& score : row_scores) {
    all.nll.push_back(score.nll);
    all.greedy.push_back(score.greedy);
  }
  return all;
}

// The effect that reordering an fp32 sum may have, and the effect of rounding about 30 results of a
// layer stack to 8 bits (test/oracle/README.md).
template <class T>
constexpr double kScoreError = sizeof(T) == 4 ? 3e-6 : 1e-2;

}  // namespace

TEST_SUITE("evaluation") {
  TEST_CASE_TEMPLATE("rows of every length have the oracle's scores", T, float, bf16) {
    const Fixture fixture = load_fixture("odd");
    const std::int64_t length = fixture.integer("T");
    const Case sample = make_case(fixture, length, tiny_shapes() ? 3 : 40);
    const Scores scores = score<T>(fixture, sample.rows, 3, length);
    CHECK(relative_l2(scores.nll, sample.nll) < kScoreError<T>);
    if (sizeof(T) == 4) CHECK(scores.greedy == sample.greedy);
    const auto num_greedy = std::count(sample.greedy.begin(), sample.greedy.end(), true);
    CHECK(num_greedy > 0);
    CHECK(num_greedy < std::ssize(sample.greedy));
  }

  TEST_CASE(
      "the number of rows per batch changes scores only by rounding, and a run repeats bitwise") {
    const Fixture fixture = load_fixture("odd");
    const std::int64_t length = fixture.integer("T");
    const Case sample = make_case(fixture, length, tiny_shapes() ? 3 : 30);
    const Scores one = score<float>(fixture, sample.rows, 1, length);
    CHECK(one == score<float>(fixture, sample.rows, 1, length));
    for (const std::int64_t B : {2, 5, 16}) {
      const Scores other = score<float>(fixture, sample.rows, B, length);
      for (std::size_t i = 0; i < other.nll.size(); ++i) {
        CHECK(std::abs(other.nll[i] / one.nll[i] - 1) < 1e-5);
      }
      CHECK(relative_l2(other.nll, one.nll) < kScoreError<float>);
      CHECK(other.greedy == one.greedy);
      if (tiny_shapes()) break;
    }
  }

  TEST_CASE("a NaN score is never the most likely token") {
    const Fixture fixture = load_fixture("one_row");
    RunShape run;
    ModelRig<float> rig(engine_config(fixture.config()), run);
    auto parameters = fixture.parameters();
    for (double& x : parameters.at("ln_f.weight")) x = std::nan("");
    rig.set_parameters(parameters);
    Exchange exchange;
    RowScorer scorer(rig.runner(), exchange);
    const auto scores =
        scorer.score(ListedRows({{{1, 0}, 1}}), [](std::int64_t, std::int64_t) { return true; });
    CHECK(std::isnan(scores[0].nll));
    CHECK(!scores[0].greedy);
  }
}
