// The optimizer and initial values in addition to their cases in dev/ops (global_norm.h, adamw.h,
// random_fill.h): tensors in pieces, numbers that are not finite, several updates, and the
// statistics of initial values.
#include <doctest/doctest.h>

#include <tuple>
#include <utility>

#include "dev/harness/arrays.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/adamw_on_cpu.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/random_fill.h"
#include "test/guarded_state.h"
#include "test/oracle/ops.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using llmc_dev::Digest;

// Partial sums of x, computed in one call or in pieces cut at `cuts`.
template <class T>
Digest partial_sums(const DeviceArray<T>& x, std::vector<std::int64_t> cuts, Stream& stream) {
  const std::vector<float> unwritten(squared_norm_count(x.size()), NAN);
  const DeviceArray<float> partials(unwritten, stream);
  cuts.push_back(x.size());
  std::int64_t first = 0;
  for (const std::int64_t end : cuts) {
    squared_norm_partials<T>(partials.data() + first / kNormPiece, x.data() + first, end - first,
                             stream);
    first = end;
  }
  CHECK(partials.guards_intact());
  return partials.digest(0);
}

TEST_SUITE("global_norm") {
  TEST_CASE_TEMPLATE("partial sums do not depend on how the tensor is split", T, float, bf16,
                     fp16) {
    Stream stream;
    for (const std::int64_t n : {5000, 20 * 1024 + 9}) {
      const DeviceArray<T> x(convert<T>(random_floats(n, 71)), stream);
      const Digest expected = partial_sums(x, {}, stream);
      CHECK(expected.not_finite == 0);
      CHECK(partial_sums(x, {kNormPiece, 3 * kNormPiece}, stream) == expected);
    }
  }

  TEST_CASE("the global norm, the clipping factor and the check for finite numbers") {
    Stream stream;
    for (const std::int64_t count : {5, 601}) {
      std::vector<float> partials = random_floats(count, 72);
      double sum = 0.0;
      for (float& x : partials) sum += x = x * x;
      const double norm = std::sqrt(sum);
      const auto finish = [&](float max_norm, const float* loss) {
        const DeviceArray<float> device(partials, stream);
        const GuardedState state({}, stream);
        finish_global_norm(state.data(), device.data(), count, max_norm, loss, stream);
        CHECK(state.guards_intact());
        return state.read();
      };
      for (const double max_norm : {0.0, 0.5 * norm, 2.0 * norm, -1.0}) {
        const OptimizerState state = finish(static_cast<float>(max_norm), nullptr);
        CHECK(state.gradient_norm == doctest::Approx(norm).epsilon(1e-6));
        CHECK(state.gradient_scale ==
              doctest::Approx(oracle::clip_factor(norm, max_norm)).epsilon(1e-6));
        CHECK(state.finite == 1);
      }
      for (const float loss : {3.0f, NAN, INFINITY}) {
        const DeviceArray<float> device({loss}, stream);
        CHECK(finish(1.0f, device.data()).finite == (std::isfinite(loss) ? 1 : 0));
      }
      for (const float bad : {NAN, INFINITY}) {
        partials.back() = bad;
        CHECK(finish(1.0f, nullptr).finite == 0);
      }
    }
  }
}

constexpr OptimizerOptions kOptions{.beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .weight_decay = 0.1,
                                    .grad_clip = 0,
                                    .loss_scale_window = 2000};

// An oracle's step with these options.
oracle::AdamW oracle_options(const OptimizerOptions& options, double learning_rate) {
  return {.lr = learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay};
}

TEST_SUITE("adamw") {
  // Several steps with clipping, two of them with a gradient that is not finite; n is not a
  // multiple of the vector length.
  TEST_CASE_TEMPLATE("AdamW matches the oracle and skips updates that are not finite", T, float,
                     bf16, fp16) {
    Stream stream;
    const std::int64_t n = tiny_shapes() ? 37 : 2 * kNormPiece + 5;
    const double learning_rate = 1e-2;
    const float clip = 0.6f * std::sqrt(static_cast<float>(n));
    const std::vector<float> zeros(n);
    const DeviceArray<float> param(random_floats(n, 73), stream);
    const DeviceArray<float> m(zeros, stream), v(zeros, stream);
    const DeviceArray<T> working(convert<T>(zeros), stream);
    const DeviceArray<float> partials(std::vector<float>(squared_norm_count(n)), stream);
    const GuardedState state({}, stream);
    oracle::Vec expected_param = param.values(), expected_m(n), expected_v(n);
    int updates = 0;
    for (int step = 0; step < 6; ++step) {
      const bool bad = step == 2 || step == 3;
      // Clipped in all steps except 1.
      std::vector<float> gradients = random_floats(n, 100 + step, step == 1 ? 0.1 : 1.0);
      if (bad) gradients[n - 1] = step == 2 ? NAN : INFINITY;
      const DeviceArray<float> gradient(gradients, stream);
      const Digest param_before = param.digest(0), working_before = working.digest(0);

      squared_norm_partials<float>(partials.data(), gradient.data(), n, stream);
      finish_global_norm(state.data(), partials.data(), partials.size(), clip, nullptr, stream);
      begin_adamw(state.data(), kOptions, stream);
      adamw<T>(param.data(), working.data(), m.data(), v.data(), gradient.data(), n, kOptions,
               learning_rate, true, state.data(), stream);

      if (bad) {
        CHECK(param.digest(0) == param_before);
        CHECK(working.digest(0) == working_before);
      } else {
        oracle::Vec clipped = gradient.values();
        const double factor = oracle::clip_factor(oracle::global_norm({clipped}), clip);
        CHECK((factor < 1.0) == (step != 1));
        for (double& g : clipped) g *= factor;
        oracle::adamw_step(expected_param, expected_m, expected_v, clipped, ++updates,
                           oracle_options(kOptions, learning_rate));
        const DeviceArray<T> rounded(convert<T>(param.stored()), stream);
        CHECK(working.digest(0) == rounded.digest(0));
      }
      CHECK(relative_l2(param.values(), expected_param) < 1e-6);
      CHECK(relative_l2(m.values(), expected_m) < 1e-6);
      CHECK(relative_l2(v.values(), expected_v) < 1e-6);
      const OptimizerState after = state.read();
      CHECK(after.updates == updates);
      CHECK(after.skipped_updates == step + 1 - updates);
      CHECK(after.consecutive_skips == (step == 2 ? 1 : step == 3 ? 2 : 0));
    }
    for (const DeviceArray<float>* array : {&param, &m, &v}) CHECK(array->guards_intact());
    CHECK(working.guards_intact());
    CHECK(state.guards_intact());
  }

  TEST_CASE_TEMPLATE("AdamW on the CPU has the kernel's results, with any number of threads", T,
                     float, bf16, fp16) {
    Stream stream;
    const std::int64_t n = tiny_shapes() ? 37 : (1 << 17) + 41;  // three ranges, the last not full
    const OptimizerState now{.gradient_scale = 0.7f,
                             .finite = 1,
                             .updates = 9,
                             .bias_correction1 = 0.6f,
                             .bias_correction2_root = 0.1f};
    const GuardedState state(now, stream);
    std::vector<float> squares = random_floats(n, 80);
    for (float& x : squares) x *= x;
    const auto compare = [&]<class Rounding>(int threads, const Rounding& rounding) {
      WorkerPool pool(threads);
      const DeviceArray<float> param(random_floats(n, 78), stream), m(random_floats(n, 79), stream);
      const DeviceArray<float> v(squares, stream), gradient(random_floats(n, 81), stream);
      const DeviceArray<T> working(std::vector<T>(static_cast<std::size_t>(n)), stream);
      std::vector<float> p = param.stored(), first = m.stored(), second = v.stored();
      const std::vector<float> g = gradient.stored();
      std::vector<T> w = working.stored();
      const AdamWArrays<T> arrays{p.data(), w.data(), first.data(), second.data(), g.data(), n};
      AdamWPart<T> part{arrays, true};
      if constexpr (std::is_same_v<Rounding, StochasticRounding>) part.rounding = rounding;
      const auto update = [&](const OptimizerState& state) {
        adamw_on_cpu<T>({part}, kOptions, 1e-3, state, pool);
      };
      OptimizerState skipped = now;
      skipped.finite = 0;
      update(skipped);
      CHECK(same_bits(p, param.stored()));  // nothing has changed
      update(now);
      adamw<T>(param.data(), working.data(), m.data(), v.data(), gradient.data(), n, kOptions, 1e-3,
               true, state.data(), stream, rounding);
      if (kGpuKernels) {  // whose compiler contracts other products and sums
        CHECK(relative_l2(oracle::Vec(p.begin(), p.end()), param.values()) < 1e-6);
        CHECK(relative_l2(oracle::Vec(first.begin(), first.end()), m.values()) < 1e-6);
        CHECK(relative_l2(oracle::Vec(second.begin(), second.end()), v.values()) < 1e-6);
        return;
      }
      CHECK(same_bits(p, param.stored()));
      CHECK(same_bits(first, m.stored()));
      CHECK(same_bits(second, v.stored()));
      CHECK(same_bits(w, working.stored()));
    };
    for (const int threads : {1, 3}) {
      compare(threads, NearestRounding{});
      if constexpr (!std::is_same_v<T, float>) {
        compare(threads, StochasticRounding{.seed = 11, .tensor = 4, .first = 8});
      }
    }
  }

  TEST_CASE("bias corrections are exact in the first step with beta2 = 0.9999") {
    Stream stream;
    const GuardedState state({.finite = 1, .updates = 0}, stream);
    OptimizerOptions options = kOptions;
    options.beta2 = 0.9999;
    begin_adamw(state.data(), options, stream);
    const OptimizerState after = state.read();
    CHECK(after.bias_correction1 == doctest::Approx(0.1).epsilon(1e-7));
    CHECK(after.bias_correction2_root == doctest::Approx(0.01).epsilon(1e-7));
  }

  TEST_CASE("AdamW continues a resumed count of updates, without working weights") {
    Stream stream;
    OptimizerOptions options = kOptions;
    options.beta2 = 0.95;
    options.eps = 0.5;  // as large as the moments, so that its place in the formula matters
    const double learning_rate = 1e-3;
    const std::int64_t n = 11;
    std::vector<float> squares = random_floats(n, 77);
    for (float& x : squares) x = std::abs(x);
    const DeviceArray<float> param(random_floats(n, 74), stream);
    const DeviceArray<float> gradient(random_floats(n, 75), stream);
    const DeviceArray<float> m(random_floats(n, 76), stream), v(squares, stream);
    const GuardedState state({.gradient_scale = 1.0f, .finite = 1, .updates = 41}, stream);
    oracle::Vec expected = param.values(), expected_m = m.values(), expected_v = v.values();
    begin_adamw(state.data(), options, stream);
    adamw<float>(param.data(), nullptr, m.data(), v.data(), gradient.data(), n, options,
                 learning_rate, false, state.data(), stream);
    options.weight_decay = 0;  // these parameters have none
    oracle::adamw_step(expected, expected_m, expected_v, gradient.values(), 42,
                       oracle_options(options, learning_rate));
    CHECK(relative_l2(param.values(), expected) < 1e-6);
    CHECK(state.read().updates == 42);
  }
}

// A rank's part of a tensor of 5 rows: the second of two pieces of 12 elements, three times per
// row. Each row of the whole tensor has 8 more elements at its end.
constexpr GlobalIndex kPieces{
    .begin = 12, .row_size = 36, .piece = 12, .global_row_size = 80, .global_piece = 24};
constexpr std::int64_t kLocalSize = 5 * 36, kGlobalSize = 5 * 80;

std::vector<float> pieces_of(const std::vector<float>& whole) {
  std::vector<float> part;
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t begin : {12, 36, 60}) {
      const auto from = whole.begin() + row * 80 + begin;
      part.insert(part.end(), from, from + 12);
    }
  }
  return part;
}

TEST_SUITE("random_fill") {
  TEST_CASE("normal numbers have the expected moments and do not depend on the split") {
    Stream stream;
    const std::int64_t n = tiny_shapes() ? 803 : 40003;
    const auto fill = [&](std::uint64_t seed, std::uint32_t tensor,
                          std::vector<std::int64_t> cuts) {
      const DeviceArray<float> p(std::vector<float>(n, NAN), stream);
      cuts.push_back(n);
      std::int64_t first = 0;
      for (const std::int64_t end : cuts) {
        normal_fill(p.data() + first, end - first, first, seed, tensor, 0.5f, 0.02f, stream);
        first = end;
      }
      CHECK(p.guards_intact());
      return p.stored();
    };
    const std::vector<float> whole = fill(7, 3, {});
    CHECK(fill(7, 3, {1, 2, 427, 428, 430, 430, 701}) == whole);

    double sum = 0.0, squares = 0.0, fourth = 0.0, lagged[4] = {};
    for (std::int64_t i = 0; i < n; ++i) {
      const double z = (whole[i] - 0.5) / 0.02;
      sum += z;
      squares += z * z;
      fourth += z * z * z * z;
      for (int lag = 1; lag <= 4 && lag <= i; ++lag) {
        lagged[lag - 1] += z * (whole[i - lag] - 0.5) / 0.02;
      }
    }
    // The bounds are five standard errors of each moment.
    const double root_n = std::sqrt(static_cast<double>(n));
    CHECK(std::abs(sum / n) < 5 / root_n);
    CHECK(std::abs(squares / n - 1) < 5 * std::sqrt(2.0) / root_n);
    CHECK(std::abs(fourth / n - 3) < 5 * std::sqrt(96.0) / root_n);
    for (const double product : lagged) CHECK(std::abs(product / n) < 5 / root_n);

    const auto differs = [&](const std::vector<float>& other) {
      std::int64_t same = 0;
      for (std::int64_t i = 0; i < n; ++i) same += other[i] == whole[i];
      return same <= n / 1000;
    };
    CHECK(differs(fill(8, 3, {})));
    CHECK(differs(fill(7, 4, {})));
  }

  TEST_CASE("a rank's pieces have the bits of a fill of the whole tensor") {
    Stream stream;
    const DeviceArray<float> whole(std::vector<float>(kGlobalSize), stream);
    normal_fill(whole.data(), kGlobalSize, 0, 7, 3, 0.5f, 0.02f, stream);
    const std::vector<float> filled = whole.stored();
    const DeviceArray<float> part(std::vector<float>(kLocalSize, NAN), stream);
    const auto fill = [&](std::int64_t first, std::int64_t end) {
      normal_fill(part.data() + first, end - first, first, kPieces, 7, 3, 0.5f, 0.02f, stream);
    };
    for (const auto& [first, end] : {std::pair{0, 4}, {4, 20}, {20, 20}, {20, 64}, {64, 79}}) {
      fill(first, end);
    }
    CHECK(std::isnan(part.stored()[79]));
    fill(76, kLocalSize);
    CHECK(part.guards_intact());
    CHECK(part.stored() == pieces_of(filled));

    // A contiguous part may begin anywhere.
    const DeviceArray<float> row(std::vector<float>(10, NAN), stream);
    normal_fill(row.data(), 10, 2, GlobalIndex{.begin = 5}, 7, 3, 0.5f, 0.02f, stream);
    CHECK(row.guards_intact());
    CHECK(row.stored() == std::vector<float>(filled.begin() + 7, filled.begin() + 17));
  }

  TEST_CASE("pieces that cut groups of four are an error") {
    Stream stream;
    const DeviceArray<float> p(std::vector<float>(24), stream);
    const auto fill = [&](std::int64_t first, const GlobalIndex& index) {
      normal_fill(p.data(), 24, first, index, 7, 3, 0.0f, 1.0f, stream);
    };
    const auto changed = [](std::int64_t GlobalIndex::*member, std::int64_t value) {
      GlobalIndex index = kPieces;
      index.*member = value;
      return index;
    };
    fill(4, kPieces);
    CHECK_THROWS_WITH_AS(fill(6, kPieces), doctest::Contains("normal_fill: the first element"),
                         Error);
    const std::vector<std::tuple<std::int64_t GlobalIndex::*, std::int64_t, const char*>> cases = {
        {&GlobalIndex::begin, 2, "element 0 is 2, which is not a multiple of 4"},
        {&GlobalIndex::row_size, 10, "the rank's row size is 10"},
        {&GlobalIndex::piece, 6, "the size of a piece is 6"},
        {&GlobalIndex::global_row_size, 33, "the row size of the whole tensor is 33"},
        {&GlobalIndex::global_piece, 15, "the distance of two pieces in the whole tensor is 15"},
        {&GlobalIndex::piece, 0, "pieces of 0 elements do not divide a row of 36"},
        {&GlobalIndex::piece, 16, "pieces of 16 elements do not divide a row of 36"}};
    for (const auto& [member, value, message] : cases) {
      CHECK_THROWS_WITH_AS(fill(0, changed(member, value)), doctest::Contains(message), Error);
    }
  }
}

TEST_SUITE("stochastic_rounding") {
  TEST_CASE_TEMPLATE("a rank's pieces are rounded like the whole tensor", T, bf16, fp16) {
    Stream stream;
    const std::vector<float> values = random_floats(kGlobalSize, 78);
    const auto convert = [&](const std::vector<float>& inp, const StochasticRounding& rounding) {
      const DeviceArray<float> from(inp, stream);
      const DeviceArray<T> to(std::vector<T>(inp.size()), stream);
      stochastic_convert(to.data(), static_cast<const float*>(from.data()), from.size(), rounding,
                         6, stream);
      CHECK(to.guards_intact());
      return to_floats(to.stored());
    };
    const std::vector<float> part = pieces_of(values);
    const std::vector<float> expected =
        pieces_of(convert(values, StochasticRounding{.seed = 3, .tensor = 4}));
    const StochasticRounding rounding{.seed = 3, .tensor = 4, .index = kPieces};
    CHECK(convert(part, rounding) == expected);
    for (const std::int64_t first : {4, 20, 36, 52}) {
      CAPTURE(first);
      StochasticRounding rest = rounding;
      rest.first = first;
      CHECK(convert({part.begin() + first, part.end()}, rest) ==
            std::vector<float>(expected.begin() + first, expected.end()));
    }
    StochasticRounding cut = rounding;
    cut.first = 2;
    CHECK_THROWS_WITH_AS(convert(part, cut),
                         doctest::Contains("is 2, which is not a multiple of 4"), Error);
    cut = {.index = {.begin = 3}, .first = 3};
    CHECK_THROWS_WITH_AS(convert(part, cut), doctest::Contains("stochastic_convert: the first"),
                         Error);
  }
}

}  // namespace
