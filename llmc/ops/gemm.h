// What a matrix product is asked for, on either target.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "llmc/device/error.h"

namespace llmc {

// c (m, n) = alpha · op(a) op(b) + beta · c [+ bias (n) on every row], all row-major and dense.
// op(a) is (m, k): stored so, or as (k, m) when transpose_a; op(b) is (k, n), or stored (n, k).
// TI: type of a, b and bias; TO: type of c. Sums are fp32. A bias needs beta = 0, and TO = TI:
// cuBLASLt takes it in the type of the result alone (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE).
template <class TO, class TI>
struct GemmCall {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const TI* a = nullptr;
  const TI* b = nullptr;
  TO* c = nullptr;
  float alpha = 1, beta = 0;
  const TI* bias = nullptr;
};

template <class TO, class TI>
void check_gemm(const GemmCall<TO, TI>& call) {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  const bool fits = call.m > 0 && call.n > 0 && call.k > 0 && call.m <= kLargest &&
                    call.n <= kLargest && call.k <= kLargest;
  if (!fits) {
    fail("a matrix product of " + std::to_string(call.m) + " x " + std::to_string(call.k) + " by " +
             std::to_string(call.k) + " x " + std::to_string(call.n),
         "each size between 1 and 2147483647");
  }
  require(call.bias == nullptr || call.beta == 0, "a matrix product with both a bias and beta");
  require(call.bias == nullptr || std::is_same_v<TO, TI>,
          "a matrix product with a bias of another type than its result's");
}

}  // namespace llmc
