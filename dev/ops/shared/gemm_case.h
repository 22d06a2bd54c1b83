// Shared parts of the cases of matrix products: sizes, tolerances and the oracle's products.
#pragma once

#include <cmath>

#include "dev/harness/op_case.h"
#include "llmc/ops/gemm/matmul.h"
#include "test/oracle/ops.h"

namespace llmc_dev::matmul {

namespace oracle = llmc::oracle;

struct Shape {
  std::int64_t M, K, N;  // (M, K) times (K, N)
  bool fp16 = true;
  bool plans = false;  // bf16 only: also run the library's other plans
  template <class T>
  bool has_plans() const {
    return plans && std::is_same_v<T, bf16>;
  }
  std::string text() const { return by(M, K) + "x" + std::to_string(N); }
  double flops() const { return 2.0 * static_cast<double>(M) * static_cast<double>(K * N); }
  // Bytes of both operands and of `results` results.
  template <class T>
  double bytes(double results = 1) const {
    return sizeof(T) * (static_cast<double>(M * K + K * N) + results * static_cast<double>(M * N));
  }
  // The compared ones of `rows` rows: all rows of a small product, at most `most` of a large one.
  std::vector<std::int64_t> compared(std::int64_t rows, std::int64_t most) const {
    return sample(rows, M * K * N <= 1 << 24 ? rows : most);
  }
  // Standard deviation of the weights in products with GELU. The sums have a deviation of 2, so
  // that most of them lie where GELU is neither 0 nor its input.
  float gelu_deviation() const { return 2 / std::sqrt(static_cast<float>(K)); }
};

// Half-precision products are summed in tensor cores, which may truncate to 24 bits; an fp32 sum
// rounds. Truncation adds a one-sided error for every step of 16 terms.
template <class TI, class TO>
double product_tolerance(std::int64_t terms) {
  const double cut = sizeof(TI) < 4 ? static_cast<double>(terms) / 16 * 0x1p-24 : 0;
  return tolerance<TO>(terms) + cut;
}

// GELU inside a product on a GPU may use a coarse tanh (llmc/ops/gemm/gemm.h). GELU's slope and
// derivative at most double its error.
inline double epilogue_tolerance(const std::string& variant) {
  return llmc::kCudaTarget && variant == "epilogue" ? 2 * 0x1p-11 : 0;
}

template <class T>
llmc::Tensor<const T, 2> in(const DeviceArray<T>& array, int set, std::int64_t rows,
                            std::int64_t columns) {
  return make_tensor(static_cast<const T*>(array.at(set)), rows, columns);
}

inline std::int64_t count_of(const std::vector<std::int64_t>& rows) {
  return static_cast<std::int64_t>(rows.size());
}

// Rows `rows` of x^T d_y in fp64, for x (M, K) and d_y (M, N).
template <class T>
oracle::Vec weight_gradient_rows(const DeviceArray<T>& x, const DeviceArray<T>& dy, const Shape& s,
                                 const std::vector<std::int64_t>& rows) {
  const std::int64_t count = count_of(rows);
  const oracle::Vec columns = x.columns(rows, s.K);
  const std::vector<T> all = dy.stored();
  oracle::Vec sums(static_cast<std::size_t>(count * s.N)), line(static_cast<std::size_t>(s.N));
  for (std::int64_t m = 0; m < s.M; ++m) {
    for (std::int64_t n = 0; n < s.N; ++n) {
      line[n] = static_cast<double>(llmc::to_float(all[m * s.N + n]));
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const double factor = columns[m * count + r];
      for (std::int64_t n = 0; n < s.N; ++n) sums[r * s.N + n] += factor * line[n];
    }
  }
  return sums;
}

}  // namespace llmc_dev::matmul
