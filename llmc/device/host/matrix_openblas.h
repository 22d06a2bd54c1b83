// Matrix products by OpenBLAS. Interface: matrix_library.h.
#pragma once

#include <cblas.h>

#include <string>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"
#include "llmc/device/host/matrix_product.h"

namespace llmc::host {

inline bool multiplies_bf16() {
  return false;
}

template <class T>
bool adds_finished_sums(const ProductSizes&) {
  return false;
}

inline bool is_slow_stride(std::int64_t) {
  return false;
}

inline void multiply(const ProductSizes& s, const float* a, const float* b, bool accumulate,
                     float* c) {
  static const bool single_threaded = (openblas_set_num_threads(1), true);
  static_cast<void>(single_threaded);
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };
  cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, size(s.m), size(s.n), size(s.k), 1.0f, a,
              size(s.lda), b, size(s.ldb), accumulate ? 1.0f : 0.0f, c, size(s.ldc));
}

inline void multiply(const ProductSizes&, const bf16*, const bf16*, bool, float*) {
  fail("OpenBLAS does not multiply bf16 matrices");
}

inline void multiply_rounded(const ProductSizes&, const bf16*, const bf16*, const bf16*, bf16*) {
  fail("OpenBLAS does not multiply bf16 matrices");
}

// OpenBLAS describes itself as "OpenBLAS 0.3.21 DYNAMIC_ARCH ...".
inline std::string matrix_library_text() {
  const std::string text = openblas_get_config();
  const std::size_t name_end = text.find(' ');
  if (name_end == text.npos) return "OpenBLAS";
  return text.substr(0, text.find(' ', name_end + 1));
}

}  // namespace llmc::host
