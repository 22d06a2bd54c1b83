// Softmax cross-entropy and its gradient against the fp64 oracle.
#include <doctest/doctest.h>

#include "llmc/ops/classifier.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

struct Shape {
  std::int64_t rows, V, Vp;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 7, 8}, {5, 40, 40}, {3, 257, 320}, {2, 1, 8}};
  if (!tiny_shapes()) all.insert(all.end(), {{3, 50257, 50304}, {37, 1001, 1008}});
  return all;
}

// Logits in padded rows. The padding holds NaN, so that a read of it is detected.
template <class T>
struct Batch {
  std::int64_t rows, V, Vp;
  std::vector<double> logits;  // (rows, V), for the oracle
  std::vector<T> padded;       // (rows, Vp)
  std::vector<std::int32_t> targets;

  Batch(Shape s, double scale = 3.0) : rows(s.rows), V(s.V), Vp(s.Vp) {
    const Data<T> values(rows * V, 61, scale);
    logits = values.exact;
    padded.assign(rows * Vp, from_float<T>(NAN));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.stored.begin() + r * V, V, padded.begin() + r * Vp);
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
  const Guarded<T> logits(batch.padded, stream);
  const Guarded<float> losses(std::vector<float>(batch.rows, NAN), stream);
  const Guarded<std::int32_t> targets(batch.targets, stream);
  fused_classifier<T>(
      make_tensor(logits.data(), batch.rows, batch.Vp), make_tensor(losses.data(), batch.rows),
      make_tensor<const std::int32_t>(targets.data(), batch.rows), dloss, batch.V, stream);
  CHECK(logits.intact());
  CHECK(losses.intact());
  return {logits.values(), losses.values()};
}

template <class T>
void check_against_oracle(const Batch<T>& batch, const Result<T>& got, double dloss) {
  const oracle::Classifier expected = batch.expected(dloss);
  // Each loss is a sum of numbers as large as the logits: about 8 fp32 roundings of 2^-24.
  double largest = 1.0;
  for (const double x : batch.logits) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  CHECK(max_abs_error(got.losses, expected.row_loss) < 0x1p-21 * largest);
  CHECK(relative_l2(got.losses, expected.row_loss) < 1e-6);
  CHECK(relative_l2(batch.columns(got.d_logits, 0, batch.V), expected.d_logits) < kTolerance<T>);
  for (const T& x : batch.columns(got.d_logits, batch.V, batch.Vp)) CHECK_EQ(to_float(x), 0.0f);
}

TEST_SUITE("classifier") {
  TEST_CASE_TEMPLATE("fused_classifier computes losses and replaces logits by gradients", T, float,
                     bf16, fp16) {
    Stream stream;
    for (const Shape shape : shapes()) {
      CAPTURE(shape.V);
      const Batch<T> batch(shape);
      const float dloss = 1.0f / 96;
      const Result<T> got = run_fused(batch, dloss, stream);
      check_against_oracle(batch, got, dloss);
      const Result<T> again = run_fused(batch, dloss, stream);
      CHECK(same_bits(again.d_logits, got.d_logits));
      CHECK(same_bits(again.losses, got.losses));
    }
  }

  TEST_CASE_TEMPLATE("classifier_loss equals the fused losses and does not change logits", T, float,
                     bf16, fp16) {
    Stream stream;
    for (const Shape shape : shapes()) {
      Batch<T> batch(shape);
      if (shape.rows > 2) batch.targets[1] = -1;
      const Guarded<T> logits(batch.padded, stream);
      const Guarded<float> losses(std::vector<float>(batch.rows, NAN), stream);
      const Guarded<std::int32_t> targets(batch.targets, stream);
      classifier_loss<T>(
          make_tensor(losses.data(), batch.rows), make_tensor(logits.data(), batch.rows, batch.Vp),
          make_tensor<const std::int32_t>(targets.data(), batch.rows), batch.V, stream);
      CHECK(same_bits(losses.values(), run_fused(batch, 1.0f, stream).losses));
      CHECK(same_bits(logits.values(), batch.padded));
      CHECK(losses.intact());
    }
  }

  TEST_CASE_TEMPLATE("a row with target -1 is ignored", T, float, bf16, fp16) {
    Stream stream;
    Batch<T> batch({4, 41, 48});
    batch.targets[0] = batch.targets[2] = -1;
    batch.padded[2 * batch.Vp + 5] = from_float<T>(NAN);  // must not be read
    batch.logits[2 * batch.V + 5] = 0.0;
    const Result<T> got = run_fused(batch, 0.25f, stream);
    check_against_oracle(batch, got, 0.25);
    CHECK(got.losses[0] == 0.0f);
    for (std::int64_t c = 0; c < batch.Vp; ++c) {
      CHECK_EQ(to_float(got.d_logits[c]), 0.0f);
      CHECK_EQ(to_float(got.d_logits[2 * batch.Vp + c]), 0.0f);
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
      const Result<float> got = run_fused(batch, 1.0f, stream);
      CHECK(std::isfinite(got.losses[0]));
      CHECK(!std::isfinite(got.losses[1]));
      CHECK(std::isfinite(got.losses[2]));
    }
  }

  TEST_CASE_TEMPLATE("merged slices of the vocabulary equal the whole vocabulary", T, float, bf16,
                     fp16) {
    Stream stream;
    for (const Shape shape : shapes()) {
      if (shape.V < 7) continue;
      Batch<T> batch(shape);
      if (shape.rows > 2) batch.targets[1] = -1;
      const std::int64_t rows = batch.rows, cuts[] = {0, shape.V / 3, shape.V / 3 + 1, shape.V};
      constexpr std::int64_t kSlices = 3;
      const Guarded<std::int32_t> ids(batch.targets, stream);
      const auto targets = make_tensor<const std::int32_t>(ids.data(), rows);

      std::vector<Guarded<T>> slices;
      const Guarded<float> all_max(std::vector<float>(kSlices * rows, NAN), stream);
      const Guarded<float> all_sum(all_max.values(), stream), all_target(all_max.values(), stream);
      for (std::int64_t s = 0; s < kSlices; ++s) {
        const std::int64_t width = cuts[s + 1] - cuts[s], pitch = round_up(width, 8);
        std::vector<T> logits(rows * pitch, from_float<T>(NAN));
        for (std::int64_t r = 0; r < rows; ++r) {
          std::copy_n(batch.padded.begin() + r * batch.Vp + cuts[s], width,
                      logits.begin() + r * pitch);
        }
        slices.emplace_back(logits, stream);
        classifier_statistics<T>(make_tensor(all_max.data() + s * rows, rows),
                                 make_tensor(all_sum.data() + s * rows, rows),
                                 make_tensor(all_target.data() + s * rows, rows),
                                 make_tensor(slices.back().data(), rows, pitch), targets, cuts[s],
                                 cuts[s + 1], stream);
      }
      const Guarded<float> row_max(std::vector<float>(rows, NAN), stream);
      const Guarded<float> row_sum(row_max.values(), stream), target(row_max.values(), stream);
      merge_classifier_statistics(
          make_tensor(row_max.data(), rows), make_tensor(row_sum.data(), rows),
          make_tensor(target.data(), rows), make_tensor(all_max.data(), kSlices, rows),
          make_tensor(all_sum.data(), kSlices, rows), make_tensor(all_target.data(), kSlices, rows),
          stream);

      const float dloss = 0.125f;
      Result<T> got{std::vector<T>(rows * batch.Vp), {}};
      for (std::int64_t s = 0; s < kSlices; ++s) {
        const std::int64_t width = cuts[s + 1] - cuts[s], pitch = round_up(width, 8);
        const Guarded<float> losses(std::vector<float>(rows, NAN), stream);
        classifier_from_statistics<T>(
            make_tensor(slices[s].data(), rows, pitch), make_tensor(losses.data(), rows), targets,
            make_tensor(row_max.data(), rows), make_tensor(row_sum.data(), rows),
            make_tensor(target.data(), rows), dloss, cuts[s], cuts[s + 1], stream);
        const std::vector<T> d = slices[s].values();
        for (std::int64_t r = 0; r < rows; ++r) {
          std::copy_n(d.begin() + r * pitch, width, got.d_logits.begin() + r * batch.Vp + cuts[s]);
          for (std::int64_t c = width; c < pitch; ++c) CHECK_EQ(to_float(d[r * pitch + c]), 0.0f);
        }
        CHECK(slices[s].intact());
        if (s > 0) CHECK(same_bits(losses.values(), got.losses));
        got.losses = losses.values();
      }
      check_against_oracle(batch, got, dloss);
    }
  }

  TEST_CASE("sum_losses adds to the total") {
    Stream stream;
    for (const std::int64_t n : {1, 3, 1001, tiny_shapes() ? 8 : 40003}) {
      std::vector<float> losses = random_floats(n, 63);
      double sum = 0.0;
      for (float& x : losses) sum += x = std::abs(x) + 5.0f;
      const Guarded<float> device(losses, stream), total({10.0f}, stream);
      for (int i = 0; i < 2; ++i) {
        sum_losses(make_tensor(total.data(), 1), make_tensor(device.data(), n), 0.25f, stream);
      }
      CHECK(relative_l2(total.values(), std::vector<double>{10.0 + 2 * 0.25 * sum}) < 1e-6);
      CHECK(total.intact());
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
