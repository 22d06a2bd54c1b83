// Global norm, clipping, AdamW, conversions and initial values.
#include <doctest/doctest.h>

#include "llmc/ops/convert.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/random_fill.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

OptimizerState read(const Guarded<OptimizerState>& state) {
  return state.values()[0];
}

std::vector<std::int64_t> sizes(std::vector<std::int64_t> always,
                                std::vector<std::int64_t> unless_tiny) {
  if (!tiny_shapes()) always.insert(always.end(), unless_tiny.begin(), unless_tiny.end());
  return always;
}

// Partial sums of x, computed in one call or in pieces cut at `cuts`.
template <class T>
std::vector<float> partial_sums(const std::vector<T>& x, std::vector<std::int64_t> cuts,
                                Stream& stream) {
  const std::int64_t n = static_cast<std::int64_t>(x.size());
  const Guarded<T> device(x, stream);
  const Guarded<float> partials(std::vector<float>(squared_norm_count(n), NAN), stream);
  cuts.push_back(n);
  std::int64_t first = 0;
  for (const std::int64_t end : cuts) {
    squared_norm_partials<T>(partials.data() + first / kNormPiece, device.data() + first,
                             end - first, stream);
    first = end;
  }
  CHECK(partials.intact());
  return partials.values();
}

TEST_SUITE("global_norm") {
  TEST_CASE_TEMPLATE("partial sums do not depend on how the tensor is split", T, float, bf16,
                     fp16) {
    Stream stream;
    for (const std::int64_t n : sizes({1, 7, 1024, 5000}, {1023, 1025, 20480 + 9})) {
      const Data<T> x(n, 71);
      const std::vector<float> got = partial_sums(x.stored, {}, stream);
      std::vector<double> expected(squared_norm_count(n));
      for (std::int64_t i = 0; i < n; ++i) expected[i / kNormPiece] += x.exact[i] * x.exact[i];
      CHECK(relative_l2(got, expected) < 1e-6);
      if (n > 3 * kNormPiece) {
        CHECK(same_bits(partial_sums(x.stored, {kNormPiece, 3 * kNormPiece}, stream), got));
      }
    }
  }

  TEST_CASE("the global norm, the clipping factor and the check for finite numbers") {
    Stream stream;
    for (const std::int64_t count : sizes({5, 601}, {1, 20001})) {
      std::vector<float> partials = random_floats(count, 72);
      double sum = 0.0;
      for (float& x : partials) sum += x = x * x;
      const double norm = std::sqrt(sum);
      const auto finish = [&](float max_norm, const float* loss) {
        const Guarded<float> device(partials, stream);
        const Guarded<OptimizerState> state(std::vector<OptimizerState>(1), stream);
        finish_global_norm(state.data(), device.data(), count, max_norm, loss, stream);
        CHECK(state.intact());
        return read(state);
      };
      for (const double max_norm : {0.0, 0.5 * norm, 2.0 * norm, -1.0}) {
        const OptimizerState state = finish(static_cast<float>(max_norm), nullptr);
        CHECK(state.gradient_norm == doctest::Approx(norm).epsilon(1e-6));
        CHECK(state.gradient_scale ==
              doctest::Approx(oracle::clip_factor(norm, max_norm)).epsilon(1e-6));
        CHECK(state.finite == 1);
      }
      for (const float loss : {3.0f, NAN, INFINITY}) {
        const Guarded<float> device({loss}, stream);
        CHECK(finish(1.0f, device.data()).finite == (std::isfinite(loss) ? 1 : 0));
      }
      for (const float bad : {NAN, INFINITY}) {
        partials.back() = bad;
        CHECK(finish(1.0f, nullptr).finite == 0);
      }
    }
  }
}

TEST_SUITE("adamw") {
  // Several steps with clipping, two of them with a gradient that is not finite; n is not a
  // multiple of the vector length.
  TEST_CASE_TEMPLATE("AdamW matches the oracle and skips updates that are not finite", T, float,
                     bf16, fp16) {
    Stream stream;
    const std::int64_t n = tiny_shapes() ? 37 : 2 * kNormPiece + 5;
    const OptimizerOptions options{.beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .grad_clip = 0,
                                   .loss_scale_window = 2000};
    const double learning_rate = 1e-2;
    const float clip = 0.6f * std::sqrt(static_cast<float>(n));
    const Data<float> start(n, 73);
    oracle::Vec p = start.exact, m(n), v(n);

    const Guarded<float> param(start.stored, stream);
    const Guarded<float> first(std::vector<float>(n), stream), second(first.values(), stream);
    const Guarded<T> working(std::vector<T>(n), stream);
    const Guarded<float> partials(std::vector<float>(squared_norm_count(n)), stream);
    const Guarded<OptimizerState> state(std::vector<OptimizerState>(1), stream);
    int updates = 0;
    for (int step = 0; step < 6; ++step) {
      const bool bad = step == 2 || step == 3;
      Data<float> grad(n, 100 + step, step == 1 ? 0.1 : 1.0);  // clipped in all steps except 1
      if (bad) grad.stored[n - 1] = step == 2 ? NAN : INFINITY;
      const Guarded<float> gradient(grad.stored, stream);
      const std::vector<float> before = param.values();
      const std::vector<T> working_before = working.values();

      squared_norm_partials<float>(partials.data(), gradient.data(), n, stream);
      finish_global_norm(state.data(), partials.data(), partials.size(), clip, nullptr, stream);
      begin_adamw(state.data(), options, stream);
      adamw<T>(param.data(), working.data(), first.data(), second.data(), gradient.data(), n,
               options, learning_rate, true, state.data(), stream);

      if (bad) {
        CHECK(same_bits(param.values(), before));
        CHECK(same_bits(working.values(), working_before));
      } else {
        const double factor = oracle::clip_factor(oracle::global_norm({grad.exact}), clip);
        CHECK((factor < 1.0) == (step != 1));
        for (double& g : grad.exact) g *= factor;
        oracle::adamw_step(p, m, v, grad.exact, ++updates,
                           {.lr = learning_rate,
                            .beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .eps = options.eps,
                            .weight_decay = options.weight_decay});
        CHECK(same_bits(working.values(), convert<T>(param.values())));
      }
      CHECK(relative_l2(param.values(), p) < 1e-6);
      CHECK(relative_l2(first.values(), m) < 1e-6);
      CHECK(relative_l2(second.values(), v) < 1e-6);
      CHECK(read(state).updates == updates);
      CHECK(read(state).skipped_updates == step + 1 - updates);
      CHECK(read(state).consecutive_skips == (step == 2 ? 1 : step == 3 ? 2 : 0));
    }
    for (const Guarded<float>* a : {&param, &first, &second}) CHECK(a->intact());
    CHECK(working.intact());
    CHECK(state.intact());
  }

  TEST_CASE("bias corrections are exact in the first step with beta2 = 0.9999") {
    Stream stream;
    const Guarded<OptimizerState> state({OptimizerState{.finite = 1, .updates = 0}}, stream);
    begin_adamw(state.data(),
                {.beta1 = 0.9,
                 .beta2 = 0.9999,
                 .eps = 1e-8,
                 .weight_decay = 0,
                 .grad_clip = 0,
                 .loss_scale_window = 2000},
                stream);
    CHECK(read(state).bias_correction1 == doctest::Approx(0.1).epsilon(1e-7));
    CHECK(read(state).bias_correction2_root == doctest::Approx(0.01).epsilon(1e-7));
  }

  TEST_CASE("AdamW continues a resumed count of updates, without working weights") {
    Stream stream;
    // eps is as large as the moments, so that its place in the formula matters.
    const OptimizerOptions options{.beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 0.5,
                                   .weight_decay = 0.1,
                                   .grad_clip = 0,
                                   .loss_scale_window = 2000};
    const std::int64_t n = 11;
    const Data<float> start(n, 74), grad(n, 75), m0(n, 76);
    Data<float> v0(n, 77);
    for (std::int64_t i = 0; i < n; ++i) v0.exact[i] = v0.stored[i] = std::abs(v0.stored[i]);
    const Guarded<float> param(start.stored, stream), m(m0.stored, stream), v(v0.stored, stream);
    const Guarded<float> gradient(grad.stored, stream);
    const Guarded<OptimizerState> state(
        {OptimizerState{.gradient_scale = 1.0f, .finite = 1, .updates = 41}}, stream);
    begin_adamw(state.data(), options, stream);
    adamw<float>(param.data(), nullptr, m.data(), v.data(), gradient.data(), n, options, 1e-3,
                 false, state.data(), stream);
    oracle::Vec p = start.exact, m1 = m0.exact, v1 = v0.exact;
    oracle::adamw_step(p, m1, v1, grad.exact, 42, {.eps = 0.5, .weight_decay = 0.0});
    CHECK(relative_l2(param.values(), p) < 1e-6);
    CHECK(read(state).updates == 42);
  }
}

TEST_SUITE("convert") {
  TEST_CASE("arrays of any length convert to bf16 and back") {
    Stream stream;
    for (const std::int64_t n : {1, 8, 203}) {
      const std::vector<float> x = random_floats(n, 78);
      const Guarded<float> wide(x, stream), back(std::vector<float>(n), stream);
      const Guarded<bf16> narrow(std::vector<bf16>(n), stream);
      llmc::convert(narrow.data(), wide.data(), n, stream);
      llmc::convert(back.data(), narrow.data(), n, stream);
      CHECK(same_bits(narrow.values(), llmc_test::convert<bf16>(x)));
      CHECK(same_bits(back.values(), to_floats(narrow.values())));
      CHECK(narrow.intact());
      CHECK(back.intact());
    }
  }
}

TEST_SUITE("random_fill") {
  TEST_CASE("normal numbers have the expected moments and do not depend on the split") {
    Stream stream;
    const std::int64_t n = tiny_shapes() ? 803 : 40003;
    const auto fill = [&](std::uint64_t seed, std::uint32_t tensor,
                          std::vector<std::int64_t> cuts) {
      const Guarded<float> p(std::vector<float>(n, NAN), stream);
      cuts.push_back(n);
      std::int64_t first = 0;
      for (const std::int64_t end : cuts) {
        normal_fill(p.data() + first, end - first, first, seed, tensor, 0.5f, 0.02f, stream);
        first = end;
      }
      CHECK(p.intact());
      return p.values();
    };
    const std::vector<float> whole = fill(7, 3, {});
    CHECK(same_bits(fill(7, 3, {1, 2, 427, 428, 430, 430, 701}), whole));

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

  TEST_CASE_TEMPLATE("constant_fill writes every element", T, float, bf16, fp16) {
    Stream stream;
    for (const std::int64_t n : {1, 16, 203}) {
      const Guarded<T> p(std::vector<T>(n), stream);
      constant_fill<T>(p.data(), n, 1.5f, stream);
      CHECK(to_floats(p.values()) == std::vector<float>(n, 1.5f));
      CHECK(p.intact());
    }
  }
}

}  // namespace
