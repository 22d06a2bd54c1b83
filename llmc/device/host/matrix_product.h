// Sizes of a product of two matrices on the host.
#pragma once

#include <cstdint>

namespace llmc::host {

// Sizes of one product. op(a) is (m, k), op(b) is (k, n), c is (m, n). Matrices are row-major, and
// lda, ldb, ldc are the elements from one stored row to the next. With transpose_a, a is stored as
// (k, m); with transpose_b, b is stored as (n, k).
struct ProductSizes {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  std::int64_t lda, ldb, ldc;

  bool operator==(const ProductSizes&) const = default;

  // Whether all matrices are stored without gaps between rows.
  bool is_dense() const {
    return lda == (transpose_a ? m : k) && ldb == (transpose_b ? k : n) && ldc == n;
  }
};

}  // namespace llmc::host
