// Bias gradients (column sums) against the fp64 oracle.
#include <doctest/doctest.h>

#include "llmc/ops/bias_gradient.h"
#include "test/guarded.h"
#include "test/oracle/ops.h"

namespace {

using namespace llmc;
using namespace llmc_test;

template <class T>
std::vector<float> run(const Data<T>& d_out, const std::vector<float>& start, std::int64_t M,
                       std::int64_t N, Stream& stream) {
  const Guarded<T> input(d_out.stored, stream);
  const Guarded<float> d_bias(start, stream);
  const std::int64_t floats = bias_gradient_scratch(M, N);
  const Guarded<float> scratch(std::vector<float>(floats, NAN), stream);
  bias_gradient<T>(make_tensor(d_bias.data(), N), make_tensor(input.data(), M, N),
                   make_tensor(scratch.data(), floats), stream);
  CHECK(d_bias.intact());
  CHECK(scratch.intact());
  return d_bias.values();
}

TEST_SUITE("bias_gradient") {
  TEST_CASE_TEMPLATE("the bias gradient adds the column sums", T, float, bf16, fp16) {
    Stream stream;
    struct Shape {
      std::int64_t M, N;
    };
    // One row; fewer rows than warps; row counts that the slabs do not divide; several tiles.
    std::vector<Shape> shapes = {{1, 8}, {3, 40}, {67, 264}};
    if (!tiny_shapes())
      shapes.insert(shapes.end(), {{130, 768}, {1000, 40}, {257, 1600}, {129, 3072}, {70000, 8}});
    for (const auto [M, N] : shapes) {
      const Data<T> d_out(M * N, 21);
      const std::vector<float> start = random_floats(N, 22);
      const std::vector<float> got = run(d_out, start, M, N, stream);

      std::vector<double> expected = oracle::bias_backward(d_out.exact, M, N);
      double largest = 0.0;  // size of the sums' terms: random signs make the sums small
      for (std::int64_t n = 0; n < N; ++n) {
        double absolute = 0.0;
        for (std::int64_t m = 0; m < M; ++m) absolute += std::abs(d_out.exact[m * N + n]);
        largest = std::max(largest, absolute);
        expected[n] += start[n];
      }
      CAPTURE(M);
      CAPTURE(N);
      // The tolerance is fp32's for every T: only inputs are rounded, before the oracle reads them.
      CHECK(relative_l2(got, expected) < 1e-6);
      CHECK(max_abs_error(got, expected) < 1e-6 * largest + 1e-6);
      CHECK(same_bits(run(d_out, start, M, N, stream), got));
    }
  }

  TEST_CASE("no rows change nothing; short scratch and odd row lengths are rejected") {
    Stream stream;
    const Guarded<float> x(std::vector<float>(64, 1.0f), stream);
    bias_gradient<float>(make_tensor(x.data(), 8), make_tensor(x.data(), 0, 8), {}, stream);
    // A frozen bias needs no scratch.
    bias_gradient<float>({}, make_tensor(x.data(), 2, 8), {}, stream);
    CHECK(x.values() == std::vector<float>(64, 1.0f));
    CHECK_THROWS_WITH_AS(bias_gradient<float>(make_tensor(x.data(), 8), make_tensor(x.data(), 2, 8),
                                              make_tensor(x.data(), 7), stream),
                         doctest::Contains("scratch holds 7 floats, 8 are needed"), Error);
    CHECK_THROWS_WITH_AS(
        bias_gradient<float>(make_tensor(x.data(), 12), make_tensor(x.data(), 2, 12),
                             make_tensor(x.data(), 64), stream),
        doctest::Contains("rows of 12 elements"), Error);
  }
}

}  // namespace
