// The host's matrix library: what the products of ops/gemm/gemm_host.h depend on. To test other
// instruction sets, set ONEDNN_MAX_CPU_ISA (test_cpu_programs.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "llmc/device/dtype.h"
#include "llmc/device/host/matrix_library.h"
#include "llmc/ops/gemm/matmul.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::random_floats;
using llmc_test::tiny_shapes;

namespace {

template <class T>
std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float x : values) result.push_back(from_float<T>(x));
  return result;
}

// A product with gaps at the end of every row, and all that its result is compared with.
template <class T>
struct Product {
  host::ProductSizes s;
  std::vector<T> a, b;

  static constexpr std::int64_t kGap = 5;

  Product(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b)
      : s{m,
          n,
          k,
          transpose_a,
          transpose_b,
          (transpose_a ? m : k) + kGap,
          (transpose_b ? k : n) + kGap,
          n + kGap},
        a(stored<T>(random_floats((transpose_a ? k : m) * s.lda, 1))),
        b(stored<T>(random_floats((transpose_b ? n : k) * s.ldb, 2))) {}

  // The product added to `c`, or written if `accumulate` is false.
  std::vector<float> run(std::vector<float> c, bool accumulate) const {
    host::multiply(s, a.data(), b.data(), accumulate, c.data());
    return c;
  }
  std::vector<float> random_result() const { return random_floats(s.m * s.ldc, 3); }

  double exact(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t x = 0; x < s.k; ++x) {
      const T left = a[static_cast<std::size_t>(s.transpose_a ? x * s.lda + i : i * s.lda + x)];
      const T right = b[static_cast<std::size_t>(s.transpose_b ? j * s.ldb + x : x * s.ldb + j)];
      sum += static_cast<double>(to_float(left)) * static_cast<double>(to_float(right));
    }
    return sum;
  }
};

template <class T>
void check_product(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                   bool transpose_b) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(transpose_a);
  CAPTURE(transpose_b);
  const Product<T> product(m, n, k, transpose_a, transpose_b);
  const std::vector<float> before = product.random_result();
  const std::vector<float> after = product.run(before, false);
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < product.s.ldc; ++j) {
      const auto at = static_cast<std::size_t>(i * product.s.ldc + j);
      if (j >= n) {
        CHECK(after[at] == before[at]);
        continue;
      }
      const double exact = product.exact(i, j);
      error += (static_cast<double>(after[at]) - exact) * (static_cast<double>(after[at]) - exact);
      norm += exact * exact;
    }
  }
  // Products of bf16 numbers are exact in fp32, so both types only round the sums.
  CHECK(std::sqrt(error / norm) < (4 + std::sqrt(static_cast<double>(k))) * 0x1p-24);
}

template <class T>
void check_products() {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      check_product<T>(1, 1, 1, transpose_a, transpose_b);
      check_product<T>(7, 37, 19, transpose_a, transpose_b);
      check_product<T>(64, 48, 130, transpose_a, transpose_b);
      check_product<T>(130, 200, 96, transpose_a, transpose_b);
    }
  }
}

// c + product, in one call of Gemm, against a product that is stored and then added.
template <class T>
void check_accumulation() {
  Stream stream;
  Gemm gemm;
  using Sizes = std::vector<std::int64_t>;
  for (const std::int64_t k :
       tiny_shapes() ? Sizes{1, 63, 500} : Sizes{1, 63, 256, 500, 768, 1024, 3072}) {
    for (const std::int64_t m : tiny_shapes() ? Sizes{2, 48} : Sizes{2, 48, 300}) {
      CAPTURE(m);
      CAPTURE(k);
      const std::int64_t n = 80;
      const std::vector<T> a = stored<T>(random_floats(k * m, 1)),
                           b = stored<T>(random_floats(k * n, 2));
      const std::vector<float> before = random_floats(m * n, 3);
      const auto multiply = [&](std::vector<float>& c, float beta) {
        matmul(make_tensor(c.data(), m, n), make_tensor(a.data(), k, m), Transpose::yes,
               make_tensor(b.data(), k, n), Transpose::no, beta, static_cast<const T*>(nullptr),
               gemm, stream);
        stream.synchronize();
      };
      std::vector<float> expected(before.size()), after = before;
      multiply(expected, 0.0f);
      for (std::size_t i = 0; i < before.size(); ++i) expected[i] += before[i];
      multiply(after, 1.0f);
      CHECK(after == expected);
    }
  }
}

}  // namespace

TEST_SUITE("host matrix library") {
  TEST_CASE("fp32 products match fp64 ones and write nothing between rows") {
    check_products<float>();
  }
  TEST_CASE("bf16 products match fp64 ones and write nothing between rows") {
    if (host::multiplies_bf16()) check_products<bf16>();
  }
  TEST_CASE("accumulating adds the finished sum to the bit, with every instruction set") {
    check_accumulation<float>();
    check_accumulation<bf16>();
    check_accumulation<fp16>();
  }
}
