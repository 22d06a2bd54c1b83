// The classifier in addition to its cases in dev/ops/classifier.h: rows without a target, logits
// that are large or not finite, slices of the vocabulary against the whole, and errors.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/classifier_row.h"
#include "llmc/ops/classifier_slices.h"
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

// The statistics of all slices, and of whole rows.
struct SlicedResult {
  std::vector<float> gathered;  // (slices, 3, rows)
  std::vector<float> merged;    // (3, rows)
};

// Runs both phases on slices between `cuts`, in rows of the widest slice's width. Returns the
// gradients of all slices side by side, as fused_classifier writes them.
template <class T>
Result<T> run_slices(const Batch<T>& batch, const std::vector<std::int64_t>& cuts, float dloss,
                     Stream& stream, float factor = 1, SlicedResult* statistics = nullptr) {
  const std::int64_t rows = batch.rows, count = std::ssize(cuts) - 1;
  std::int64_t width = 8;
  for (std::int64_t j = 0; j < count; ++j) width = std::max(width, cuts[j + 1] - cuts[j]);
  const std::int64_t pitch = round_up(width, 8);
  const DeviceArray<std::int32_t> ids(batch.targets, stream);
  const Tensor<const std::int32_t, 1> targets{ids.data(), {rows}};
  const DeviceArray<float> gathered(std::vector<float>(count * 3 * rows, NAN), stream);
  const DeviceArray<float> merged(std::vector<float>(3 * rows, NAN), stream);
  const DeviceArray<float> losses(std::vector<float>(rows, NAN), stream);
  const DeviceArray<float> losses_only(losses.stored(), stream), factors({factor}, stream);
  const auto slice = [&](std::int64_t j) { return VocabularySlice{cuts[j], cuts[j + 1]}; };
  std::deque<DeviceArray<T>> logits;
  for (std::int64_t j = 0; j < count; ++j) {
    std::vector<T> padded(rows * pitch, from_float<T>(NAN));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(batch.padded.begin() + r * batch.Vp + cuts[j], slice(j).size(),
                  padded.begin() + r * pitch);
    }
    logits.emplace_back(padded, stream);
    classifier_statistics<T>(make_tensor(gathered.data() + j * 3 * rows, 3, rows),
                             make_tensor(logits.back().data(), rows, pitch), targets, slice(j),
                             stream);
  }
  merge_classifier_statistics(make_tensor(merged.data(), 3, rows),
                              make_tensor(gathered.data(), count, 3, rows), stream);
  classifier_loss_from_statistics(make_tensor(losses_only.data(), rows), targets,
                                  make_tensor(merged.data(), 3, rows), stream);
  if (statistics != nullptr) *statistics = {gathered.stored(), merged.stored()};
  Result<T> result{std::vector<T>(rows * batch.Vp, from_float<T>(0.0f)), {}};
  for (std::int64_t j = 0; j < count; ++j) {
    classifier_from_statistics<T>(
        make_tensor(logits[j].data(), rows, pitch), make_tensor(losses.data(), rows), targets,
        make_tensor(merged.data(), 3, rows), dloss, slice(j), stream, factors.data());
    CHECK(same_bits(losses.stored(), losses_only.stored()));
    CHECK(logits[j].guards_intact());
    const std::vector<T> d = logits[j].stored();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = d.begin() + r * pitch;
      std::copy_n(row, slice(j).size(), result.d_logits.begin() + r * batch.Vp + cuts[j]);
      for (std::int64_t c = slice(j).size(); c < pitch; ++c) CHECK_EQ(to_float(row[c]), 0.0f);
    }
  }
  result.losses = losses.stored();
  return result;
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

  TEST_CASE_TEMPLATE("slices of the vocabulary match the oracle and the whole vocabulary", T, float,
                     bf16, fp16) {
    Stream stream;
    Batch<T> batch({7, 101, 104});
    batch.targets[2] = -1;
    // In the last cut, row 0's target has the column of a padding column of slice [0, 37).
    batch.targets[0] = 39;
    const Result<T> whole = run_fused(batch, 0.25f, stream);
    for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 101},
                                                  {0, 40, 80, 101},
                                                  {0, 40, 80, 101, 101},
                                                  {0, 0, 37, 37, 38, 101}}) {
      CAPTURE(cuts.size());
      const Result<T> result = run_slices(batch, cuts, 0.25f, stream);
      check_against_oracle(batch, result, 0.25);
      CHECK(max_abs_error(result.losses, oracle::to_double(whole.losses)) < 4e-6);
    }
    // One slice has the bits of the one kernel: no sum is merged.
    const Result<T> one = run_slices(batch, {0, 101}, 0.25f, stream);
    CHECK(same_bits(one.d_logits, whole.d_logits));
    CHECK(same_bits(one.losses, whole.losses));
  }

  TEST_CASE_TEMPLATE("empty slices are neutral", T, float, bf16, fp16) {
    Stream stream;
    const Batch<T> batch({5, 41, 48}, 10.0);
    SlicedResult with, without;
    const Result<T> a = run_slices(batch, {0, 0, 41, 41}, 1.0f, stream, 1.0f, &with);
    const Result<T> b = run_slices(batch, {0, 41}, 1.0f, stream, 1.0f, &without);
    CHECK(same_bits(with.merged, without.merged));
    CHECK(same_bits(a.d_logits, b.d_logits));
    CHECK(same_bits(a.losses, b.losses));
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      CHECK_EQ(with.gathered[r], kMinLogit);
      CHECK_EQ(with.gathered[batch.rows + r], 0.0f);
      CHECK_EQ(with.gathered[2 * batch.rows + r], 0.0f);
    }
  }

  TEST_CASE("a merge of empty slices only has a sum of 0 and is not NaN") {
    Stream stream;
    const std::vector<float> empty = {kMinLogit, 0.0f, 0.0f};
    std::vector<float> both = empty;
    both.insert(both.end(), empty.begin(), empty.end());
    const DeviceArray<float> all(both, stream), merged(std::vector<float>(3, NAN), stream);
    merge_classifier_statistics(make_tensor(merged.data(), 3, 1), make_tensor(all.data(), 2, 3, 1),
                                stream);
    CHECK(merged.stored() == empty);
  }

  TEST_CASE("the factor of slices multiplies the gradients and not the losses") {
    Stream stream;
    const Batch<fp16> batch({5, 41, 48});
    const std::vector<std::int64_t> cuts = {0, 16, 32, 41};
    const Result<fp16> scaled = run_slices(batch, cuts, 0.5f, stream, 1024.0f);
    const Result<fp16> direct = run_slices(batch, cuts, 512.0f, stream);
    CHECK(same_bits(scaled.d_logits, direct.d_logits));
    CHECK(same_bits(scaled.losses, direct.losses));
  }

  TEST_CASE("a slice wider than its rows is rejected") {
    Stream stream;
    float x[16];
    std::int32_t target = 0;
    const Tensor<const std::int32_t, 1> targets{&target, {1}};
    CHECK_THROWS_WITH_AS(classifier_statistics<float>(make_tensor(x, 3, 1), make_tensor(x, 1, 8),
                                                      targets, {4, 13}, stream),
                         doctest::Contains("tokens [4, 13) do not fit 8"), Error);
    CHECK_THROWS_AS(
        classifier_from_statistics<float>(make_tensor(x, 1, 8), make_tensor(x, 1), targets,
                                          make_tensor(x, 3, 1), 1.0f, {4, 3}, stream),
        Error);
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
