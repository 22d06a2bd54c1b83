// tanh-GELU against the fp64 oracle.
#include <doctest/doctest.h>

#include "llmc/ops/gelu.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

struct Shape {
  std::int64_t rows, C;
};

std::vector<Shape> shapes() {
  if (tiny_shapes()) return {{1, 8}, {3, 40}};
  return {{1, 8}, {3, 40}, {5, 768}, {7, 1600}};
}

// Random numbers, preceded by values at which a formula may fail.
std::vector<float> gelu_inputs(std::int64_t n) {
  std::vector<float> x = random_floats(n, 11, 2.0);
  const float special[] = {0.0f, -0.0f, 1e-20f, -1e-6f, 5.0f, -5.0f, 30.0f, -1e4f};
  std::copy(std::begin(special), std::end(special), x.begin());
  return x;
}

TEST_SUITE("gelu") {
  TEST_CASE_TEMPLATE("the forward pass matches the oracle", T, float, bf16, fp16) {
    Stream stream;
    for (const auto [rows, C] : shapes()) {
      const Data<T> x(gelu_inputs(rows * C));
      const Guarded<T> inp(x.stored, stream), out(x.stored, stream);
      gelu_forward<T>(make_tensor(out.data(), rows, C), make_tensor(inp.data(), rows, C), stream);
      CHECK(relative_l2(out.values(), oracle::gelu_forward(x.exact)) < kTolerance<T>);
      CHECK(out.intact());

      gelu_forward<T>(make_tensor(inp.data(), rows, C), make_tensor(inp.data(), rows, C), stream);
      CHECK(same_bits(inp.values(), out.values()));
    }
  }

  TEST_CASE_TEMPLATE("the backward pass matches the oracle", T, float, bf16, fp16) {
    Stream stream;
    for (const auto [rows, C] : shapes()) {
      const Data<T> x(gelu_inputs(rows * C)), dy(rows * C, 12);
      const Guarded<T> inp(x.stored, stream), d_out(dy.stored, stream), d_inp(dy.stored, stream);
      const auto view = [&, rows = rows, C = C](const Guarded<T>& a) {
        return make_tensor(a.data(), rows, C);
      };
      gelu_backward<T>(view(d_inp), view(d_out), view(inp), stream);
      const std::vector<T> got = d_inp.values();
      CHECK(relative_l2(got, oracle::gelu_backward(dy.exact, x.exact)) < kTolerance<T>);
      CHECK(d_inp.intact());

      gelu_backward<T>(view(d_out), view(d_out), view(inp), stream);
      CHECK(same_bits(d_out.values(), got));
      const Guarded<T> again(dy.stored, stream);
      gelu_backward<T>(view(inp), view(again), view(inp), stream);
      CHECK(same_bits(inp.values(), got));
    }
  }

  TEST_CASE("small results keep their relative accuracy") {
    Stream stream;
    const Data<float> x(
        std::vector<float>{-4.0f, -4.5f, -5.0f, -5.5f, -1e-7f, 1e-7f, -3.0f, -2.0f});
    const Guarded<float> inp(x.stored, stream);
    gelu_forward<float>(make_tensor(inp.data(), 1, 8), make_tensor(inp.data(), 1, 8), stream);
    const std::vector<float> got = inp.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      // The oracle's formula cancels at -5.5, to about 1e-8 of the result, far below the tolerance.
      CHECK(got[i] == doctest::Approx(oracle::gelu(x.exact[i])).epsilon(5e-6));
    }
  }

  TEST_CASE("the error names a tensor with a wrong shape") {
    Stream stream;
    float x[16];
    CHECK_THROWS_WITH_AS(gelu_forward<float>(make_tensor(x, 2, 8), make_tensor(x, 1, 8), stream),
                         doctest::Contains("tensor 'out' has shape (2, 8), expected (1, 8)"),
                         Error);
  }
}

}  // namespace
