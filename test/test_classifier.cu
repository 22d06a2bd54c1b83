// The classifier in addition to its cases in dev/ops/classifier.h: rows without a target, logits
// that are large or not finite, and errors.
#include <doctest/doctest.h>

#include "dev/harness/arrays.h"
#include "llmc/ops/classifier.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;

struct Shape {
  std::int64_t rows, V, Vp;
};

// Logits in padded rows. The padding holds NaN, so that a read of it is detected.
template <class T>
struct Batch {
  std::int64_t rows, V, Vp;
  std::vector<double> logits;  // (rows, V), for the oracle
  std::vector<T> padded;       // (rows, Vp)
  std::vector<std::int32_t> targets;

  explicit Batch(Shape s, double scale = 3.0) : rows(s.rows), V(s.V), Vp(s.Vp) {
    const std::vector<T> values = convert<T>(random_floats(rows * V, 61, scale));
    for (const T& x : values) logits.push_back(as_double(x));
    padded.assign(rows * Vp, from_float<T>(NAN));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * V, V, padded.begin() + r * Vp);
    }
    targets = random_ints(rows, 62, V);
    targets.back() = static_cast<std::int32_t>(V - 1);  // the last column, often past whole vectors
  }

  // The oracle's result; rows with target -1 have no loss and no gradient.
  oracle::Classifier expected(double dloss) const {
    oracle::Ints ids(targets.begin(), targets.end());
    oracle::Vec weights(rows, dloss);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (ids[r] < 0) ids[r] = 0, weights[r] = 0.0;
    }
    oracle::Classifier y = oracle::classifier(logits, ids, rows, V, weights);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (weights[r] == 0.0) y.row_loss[r] = 0.0;
    }
    return y;
  }

  std::vector<T> columns(const std::vector<T>& d, std::int64_t first, std::int64_t end) const {
    std::vector<T> out;
    for (std::int64_t r = 0; r < rows; ++r) {
      out.insert(out.end(), d.begin() + r * Vp + first, d.begin() + r * Vp + end);
    }
    return out;
  }
};

template <class T>
struct Result {
  std::vector<T> d_logits;  // (rows, Vp)
  std::vector<float> losses;
};

template <class T>
Result<T> run_fused(const Batch<T>& batch, float dloss, Stream& stream) {
  const DeviceArray<T> logits(batch.padded, stream);
  const DeviceArray<float> losses(std::vector<float>(batch.rows, NAN), stream);
  const DeviceArray<std::int32_t> targets(batch.targets, stream);
  fused_classifier<T>(
      make_tensor(logits.data(), batch.rows, batch.Vp), make_tensor(losses.data(), batch.rows),
      make_tensor<const std::int32_t>(targets.data(), batch.rows), dloss, batch.V, stream);
  CHECK(logits.guards_intact());
  CHECK(losses.guards_intact());
  return {logits.stored(), losses.stored()};
}

template <class T>
void check_against_oracle(const Batch<T>& batch, const Result<T>& result, double dloss) {
  const oracle::Classifier expected = batch.expected(dloss);
  // Each loss is a sum of numbers as large as the logits: about 8 fp32 roundings of 2^-24.
  double largest = 1.0;
  for (const double x : batch.logits) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  CHECK(max_abs_error(result.losses, expected.row_loss) < 0x1p-21 * largest);
  CHECK(relative_l2(result.losses, expected.row_loss) < 1e-6);
  CHECK(relative_l2(batch.columns(result.d_logits, 0, batch.V), expected.d_logits) <
        tolerance<T>());
  for (const T& x : batch.columns(result.d_logits, batch.V, batch.Vp)) CHECK_EQ(to_float(x), 0.0f);
}

TEST_SUITE("classifier") {
  TEST_CASE_TEMPLATE("a row with target -1 is ignored", T, float, bf16, fp16) {
    Stream stream;
    Batch<T> batch({4, 41, 48});
    batch.targets[0] = batch.targets[2] = -1;
    batch.padded[2 * batch.Vp + 5] = from_float<T>(NAN);  // must not be read
    batch.logits[2 * batch.V + 5] = 0.0;
    const Result<T> result = run_fused(batch, 0.25f, stream);
    check_against_oracle(batch, result, 0.25);
    CHECK(result.losses[0] == 0.0f);
    for (std::int64_t c = 0; c < batch.Vp; ++c) {
      CHECK_EQ(to_float(result.d_logits[c]), 0.0f);
      CHECK_EQ(to_float(result.d_logits[2 * batch.Vp + c]), 0.0f);
    }
  }

  TEST_CASE_TEMPLATE("large logits do not overflow; a logit of -infinity has probability 0", T,
                     float, bf16) {
    Stream stream;
    Batch<T> batch({6, 300, 304}, 200.0);
    // First whole vectors of -infinity, then single values.
    for (std::int64_t c = 0; c < 299; c += c < 48 ? 1 : 2) {
      batch.padded[c] = from_float<T>(-INFINITY);
      batch.logits[c] = -INFINITY;
    }
    batch.targets[0] = 299;
    check_against_oracle(batch, run_fused(batch, 1.0f, stream), 1.0);
  }

  TEST_CASE("a logit that is not finite affects only its own row") {
    Stream stream;
    for (const float bad : {NAN, INFINITY}) {
      Batch<float> batch({3, 100, 104});
      batch.padded[1 * 104 + 17] = bad;
      const Result<float> result = run_fused(batch, 1.0f, stream);
      CHECK(std::isfinite(result.losses[0]));
      CHECK(!std::isfinite(result.losses[1]));
      CHECK(std::isfinite(result.losses[2]));
    }
  }

  TEST_CASE("a vocabulary wider than its rows is rejected") {
    Stream stream;
    float x[8];
    std::int32_t target = 0;
    CHECK_THROWS_WITH_AS(
        fused_classifier<float>(make_tensor(x, 1, 8), make_tensor(x, 1),
                                make_tensor<const std::int32_t>(&target, 1), 1.0f, 9, stream),
        doctest::Contains("does not fit a row"), Error);
  }
}

}  // namespace
