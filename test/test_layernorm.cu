// LayerNorm with and without a residual addition, forward and backward, against the fp64 oracle.
#include <doctest/doctest.h>

#include "llmc/ops/layernorm.h"
#include "llmc/ops/residual_add.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

constexpr float kEps = 1e-5f;

struct Shape {
  std::int64_t rows, C;
};

// Every register layout of a row, full and partly filled; one row; partly filled blocks.
std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 8}, {5, 40}, {2, 1032}};
  if (!tiny_shapes()) {
    all.insert(
        all.end(),
        {{3, 264}, {130, 256}, {37, 768}, {5, 1024}, {5, 1280}, {3, 1600}, {2, 2056}, {2, 8192}});
  }
  return all;
}

struct Layer {
  std::vector<float> weight, bias;
  explicit Layer(std::int64_t C) : weight(random_floats(C, 41, 0.3)), bias(random_floats(C, 42)) {
    for (float& w : weight) w += 1.0f;
  }
};

// Rows whose mean is not zero.
std::vector<float> shifted(std::int64_t n, std::uint64_t seed, float shift) {
  std::vector<float> x = random_floats(n, seed, 1.5);
  for (float& value : x) value += shift;
  return x;
}

TEST_SUITE("layernorm") {
  TEST_CASE_TEMPLATE("the forward pass matches the oracle", T, float, bf16, fp16) {
    Stream stream;
    for (const auto [rows, C] : shapes()) {
      CAPTURE(C);
      const Layer layer(C);
      const Data<T> x(shifted(rows * C, 43, 0.7f)), w(layer.weight), b(layer.bias);
      const Guarded<T> inp(x.stored, stream), weight(w.stored, stream), bias(b.stored, stream);
      const Guarded<T> out(std::vector<T>(rows * C), stream);
      const Guarded<float> mean(std::vector<float>(rows), stream);
      const Guarded<float> rstd(std::vector<float>(rows), stream);
      layernorm_forward<T>(make_tensor(out.data(), rows, C), make_tensor(mean.data(), rows),
                           make_tensor(rstd.data(), rows), make_tensor(inp.data(), rows, C),
                           make_tensor(weight.data(), C), make_tensor(bias.data(), C), kEps,
                           stream);
      const auto expected = oracle::layernorm_forward(x.exact, w.exact, b.exact, rows, C, kEps);
      CHECK(relative_l2(out.values(), expected.out) < kTolerance<T>);
      CHECK(relative_l2(mean.values(), expected.mean) < 1e-6);
      CHECK(relative_l2(rstd.values(), expected.rstd) < 1e-6);
      CHECK(out.intact());
      CHECK(mean.intact());
      CHECK(rstd.intact());

      layernorm_forward<T>(make_tensor(inp.data(), rows, C), make_tensor(mean.data(), rows),
                           make_tensor(rstd.data(), rows), make_tensor(inp.data(), rows, C),
                           make_tensor(weight.data(), C), make_tensor(bias.data(), C), kEps,
                           stream);
      CHECK(same_bits(inp.values(), out.values()));  // in place; the second run repeats the bits
    }
  }

  TEST_CASE("a large mean does not cancel the variance") {
    Stream stream;
    const std::int64_t rows = 3, C = 768;
    const Layer layer(C);
    const Data<float> x(shifted(rows * C, 44, 1000.0f)), w(layer.weight), b(layer.bias);
    const Guarded<float> inp(x.stored, stream), weight(w.stored, stream), bias(b.stored, stream);
    const Guarded<float> mean(std::vector<float>(rows), stream), rstd(mean.values(), stream);
    layernorm_forward<float>(make_tensor(inp.data(), rows, C), make_tensor(mean.data(), rows),
                             make_tensor(rstd.data(), rows), make_tensor(inp.data(), rows, C),
                             make_tensor(weight.data(), C), make_tensor(bias.data(), C), kEps,
                             stream);
    const auto expected = oracle::layernorm_forward(x.exact, w.exact, b.exact, rows, C, kEps);
    // The mean is exact to one fp32 step at 1000, which is 6e-5; the deviation is 1.5.
    CHECK(relative_l2(inp.values(), expected.out) < 1e-4);
    CHECK(relative_l2(rstd.values(), expected.rstd) < 1e-6);
  }

  TEST_CASE_TEMPLATE("residual addition fused with LayerNorm matches the oracle", T, float, bf16,
                     fp16) {
    Stream stream;
    for (const auto [rows, C] : shapes()) {
      CAPTURE(C);
      const Layer layer(C);
      const Data<T> x1(shifted(rows * C, 45, 0.5f)), x2(rows * C, 46);
      const Data<T> w(layer.weight), b(layer.bias);
      const Guarded<T> inp1(x1.stored, stream), inp2(x2.stored, stream);
      const Guarded<T> weight(w.stored, stream), bias(b.stored, stream);
      const Guarded<T> sum(std::vector<T>(rows * C), stream), out(std::vector<T>(rows * C), stream);
      const Guarded<float> mean(std::vector<float>(rows), stream);
      const Guarded<float> rstd(std::vector<float>(rows), stream);
      const auto run = [&, rows = rows, C = C](const Guarded<T>& to) {
        residual_layernorm_forward<T>(
            make_tensor(to.data(), rows, C), make_tensor(out.data(), rows, C),
            make_tensor(mean.data(), rows), make_tensor(rstd.data(), rows),
            make_tensor(inp1.data(), rows, C), make_tensor(inp2.data(), rows, C),
            make_tensor(weight.data(), C), make_tensor(bias.data(), C), kEps, stream);
      };
      run(sum);
      const std::vector<T> got_sum = sum.values(), got = out.values();
      CHECK(relative_l2(got_sum, oracle::residual_forward(x1.exact, x2.exact)) < kTolerance<T>);
      // The op normalises the stored sum, after rounding.
      std::vector<double> stored;
      for (const T& value : got_sum) stored.push_back(as_double(value));
      const auto expected = oracle::layernorm_forward(stored, w.exact, b.exact, rows, C, kEps);
      CHECK(relative_l2(got, expected.out) < kTolerance<T>);
      CHECK(relative_l2(mean.values(), expected.mean) < 1e-6);
      CHECK(relative_l2(rstd.values(), expected.rstd) < 1e-6);
      CHECK(sum.intact());
      CHECK(out.intact());

      // The addition without a LayerNorm after it rounds in the same way.
      const Guarded<T> alone(std::vector<T>(rows * C), stream);
      residual_add<T>(make_tensor(alone.data(), rows, C), make_tensor(inp1.data(), rows, C),
                      make_tensor(inp2.data(), rows, C), stream);
      CHECK(same_bits(alone.values(), got_sum));
      CHECK(alone.intact());

      run(inp1);
      CHECK(same_bits(inp1.values(), got_sum));
      CHECK(same_bits(out.values(), got));
    }
  }

  TEST_CASE_TEMPLATE("the backward pass matches the oracle", T, float, bf16, fp16) {
    Stream stream;
    std::vector<Shape> all = shapes();
    if (!tiny_shapes()) all.push_back({1203, 8});
    for (const auto [rows, C] : all) {
      CAPTURE(C);
      const Layer layer(C);
      const Data<T> x(shifted(rows * C, 47, 0.7f)), dy(rows * C, 48), skip(rows * C, 49);
      const Data<T> w(layer.weight), b(layer.bias);
      const auto forward = oracle::layernorm_forward(x.exact, w.exact, b.exact, rows, C, kEps);
      const Guarded<T> inp(x.stored, stream), d_out(dy.stored, stream), weight(w.stored, stream);
      const Guarded<float> mean(std::vector<float>(forward.mean.begin(), forward.mean.end()),
                                stream);
      const Guarded<float> rstd(std::vector<float>(forward.rstd.begin(), forward.rstd.end()),
                                stream);
      const std::vector<float> start = random_floats(2 * C, 50);
      const std::vector<float> start_weight(start.begin(), start.begin() + C);
      const std::vector<float> start_bias(start.begin() + C, start.end());
      const std::int64_t floats = layernorm_backward_scratch(rows, C);
      const Guarded<float> scratch(std::vector<float>(floats, NAN), stream);

      struct Result {
        std::vector<T> x;
        std::vector<float> weight, bias;
      };
      const auto run = [&, rows = rows, C = C](const Guarded<T>& d_inp, T* d_residual) {
        const Guarded<float> d_weight(start_weight, stream), d_bias(start_bias, stream);
        layernorm_backward<T>(make_tensor(d_inp.data(), rows, C), make_tensor(d_weight.data(), C),
                              make_tensor(d_bias.data(), C), make_tensor(d_out.data(), rows, C),
                              make_tensor(inp.data(), rows, C), make_tensor(mean.data(), rows),
                              make_tensor(rstd.data(), rows), make_tensor(weight.data(), C),
                              make_tensor(d_residual, rows, C), make_tensor(scratch.data(), floats),
                              stream);
        CHECK(d_inp.intact());
        CHECK(d_weight.intact());
        CHECK(d_bias.intact());
        CHECK(scratch.intact());
        return Result{d_inp.values(), d_weight.values(), d_bias.values()};
      };

      auto expected = oracle::layernorm_backward(dy.exact, x.exact, w.exact, rows, C, kEps);
      oracle::add_to(expected.weight, oracle::to_double(start_weight));
      oracle::add_to(expected.bias, oracle::to_double(start_bias));
      const Guarded<T> alone(std::vector<T>(rows * C), stream);
      const Result got = run(alone, nullptr);
      CHECK(relative_l2(got.x, expected.x) <
            2 * kTolerance<T>);  // three sums and a difference of terms
      CHECK(relative_l2(got.weight, expected.weight) < 1e-6);
      CHECK(relative_l2(got.bias, expected.bias) < 1e-6);

      // Adds the skip connection's gradient in place; the other gradients keep the same bits.
      oracle::add_to(expected.x, skip.exact);
      const Guarded<T> both(skip.stored, stream);
      const Result with_skip = run(both, both.data());
      CHECK(relative_l2(with_skip.x, expected.x) < kTolerance<T>);
      CHECK(same_bits(with_skip.weight, got.weight));
      CHECK(same_bits(with_skip.bias, got.bias));

      // The result overwrites d_out.
      const Guarded<T> d_residual(skip.stored, stream);
      const Result in_place = run(d_out, d_residual.data());
      CHECK(same_bits(in_place.x, with_skip.x));
    }
  }

  TEST_CASE_TEMPLATE("a frozen weight or bias changes no bit of the other gradients", T, float,
                     bf16, fp16) {
    Stream stream;
    std::vector<Shape> all = shapes();
    if (!tiny_shapes()) all.push_back({1203, 8});
    for (const auto [rows, C] : all) {
      CAPTURE(rows);
      CAPTURE(C);
      const Guarded<T> inp(Data<T>(rows * C, 61).stored, stream);
      const Guarded<T> d_out(Data<T>(rows * C, 62).stored, stream);
      const Guarded<T> weight(convert<T>(Layer(C).weight), stream);
      const Guarded<float> mean(random_floats(rows, 63, 0.1), stream);
      const Guarded<float> rstd(std::vector<float>(rows, 0.7f), stream);
      const std::vector<float> start = random_floats(C, 64);
      struct Result {
        std::vector<T> x;
        std::vector<float> weight, bias;
      };
      const auto run = [&, rows = rows, C = C](bool weight_frozen, bool bias_frozen) {
        const std::int64_t floats = layernorm_backward_scratch(rows, C);
        const Guarded<T> d_inp(std::vector<T>(rows * C), stream);
        const Guarded<float> d_weight(start, stream), d_bias(start, stream);
        const Guarded<float> scratch(std::vector<float>(floats, NAN), stream);
        float* const no_gradient = nullptr;
        layernorm_backward<T>(make_tensor(d_inp.data(), rows, C),
                              make_tensor(weight_frozen ? no_gradient : d_weight.data(), C),
                              make_tensor(bias_frozen ? no_gradient : d_bias.data(), C),
                              make_tensor(d_out.data(), rows, C), make_tensor(inp.data(), rows, C),
                              make_tensor(mean.data(), rows), make_tensor(rstd.data(), rows),
                              make_tensor(weight.data(), C), {},
                              make_tensor(scratch.data(), floats), stream);
        CHECK(d_weight.intact());
        CHECK(d_bias.intact());
        CHECK(scratch.intact());
        return Result{d_inp.values(), d_weight.values(), d_bias.values()};
      };
      const Result expected = run(false, false);
      CHECK(!same_bits(expected.weight, start));
      for (const bool weight_frozen : {false, true}) {
        for (const bool bias_frozen : {false, true}) {
          const Result got = run(weight_frozen, bias_frozen);
          CHECK(same_bits(got.x, expected.x));
          CHECK(same_bits(got.weight, weight_frozen ? start : expected.weight));
          CHECK(same_bits(got.bias, bias_frozen ? start : expected.bias));
        }
      }
    }
  }

  TEST_CASE("unsupported row lengths are rejected") {
    Stream stream;
    const Guarded<float> x(std::vector<float>(64), stream);
    const auto with_channels = [&](std::int64_t C) {
      layernorm_forward<float>(make_tensor(x.data(), 1, C), make_tensor(x.data(), 1),
                               make_tensor(x.data(), 1), make_tensor(x.data(), 1, C),
                               make_tensor(x.data(), C), make_tensor(x.data(), C), kEps, stream);
    };
    CHECK_THROWS_WITH_AS(with_channels(12), doctest::Contains("rows of 12 elements"), Error);
    CHECK_THROWS_WITH_AS(with_channels(8200), doctest::Contains("8200 channels"), Error);
  }
}

}  // namespace
