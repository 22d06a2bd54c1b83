// Description of a matrix product, for both targets.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "llmc/base/error.h"

namespace llmc {

// Whether a product splits K if may_split_k() allows it: never; if it would otherwise use less than
// half of the GPU; or always, if the library proposes it.
enum class SplitK { never, if_idle, always };

// Options of a library's matrix products.
struct GemmOptions {
  bool allow_tf32 = false;  // round the operands of fp32 products to TF32 (10 bits of mantissa)
  SplitK split_k = SplitK::never;
  bool small_tiles = false;  // large 16-bit products use the smallest tiles that are proposed
  int proposal = 0;          // index of the usable proposal to run; 0 is the library's first choice
};

// Operation on the sums of a product before they are stored. cuBLASLt does not document the
// accuracy of its GELU; PTX's tanh.approx.f32, probably part of it, has a relative error of up to
// 2^-11.
enum class Epilogue {
  none,           // c = s
  gelu,           // c = gelu(s); aux = s
  gelu_backward,  // c = s * gelu'(aux)
};

// s = alpha · op(a) op(b) + beta · addend [+ bias (n) on every row]; c (m, n) = epilogue(s). All
// matrices are row-major and dense. op(a) is (m, k); with transpose_a, a is stored as (k, m). op(b)
// is (k, n); with transpose_b, b is stored as (n, k). TI is the type of a, b and bias; TO is the
// type of c, addend and aux. Sums and the epilogue's arithmetic are fp32. On a GPU, TI can also be
// int8 with TO int32: integer sums, with transpose_b and whole numbers as alpha and beta.
template <class TO, class TI>
struct GemmCall {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const TI* a = nullptr;
  const TI* b = nullptr;
  TO* c = nullptr;
  float alpha = 1, beta = 0;
  const TO* addend = nullptr;  // (m, n); null: c itself
  const TI* bias = nullptr;    // needs TO = TI: cuBLASLt accepts a bias only in the result's type
  Epilogue epilogue = Epilogue::none;
  TO* aux = nullptr;  // (m, n), the input of GELU: written by gelu, read by gelu_backward

  const TO* addend_or_c() const { return addend != nullptr ? addend : c; }
};

// "131 x 768 by 768 x 3072"
template <class TO, class TI>
std::string sizes_text(const GemmCall<TO, TI>& call) {
  const std::string k = std::to_string(call.k);
  return std::to_string(call.m) + " x " + k + " by " + k + " x " + std::to_string(call.n);
}

template <class TO, class TI>
void check_gemm(const GemmCall<TO, TI>& call) {
  constexpr std::int64_t kMaxSize = std::numeric_limits<int>::max();
  const bool fits = call.m > 0 && call.n > 0 && call.k > 0 && call.m <= kMaxSize &&
                    call.n <= kMaxSize && call.k <= kMaxSize;
  if (!fits) {
    fail("matrix product of " + sizes_text(call) + ": a size is out of range",
         "use sizes from 1 to 2147483647");
  }
  require(call.bias == nullptr || std::is_same_v<TO, TI>,
          "matrix product: the bias has another type than the result");
  if (call.epilogue == Epilogue::none) return;
  require(call.aux != nullptr,
          "matrix product with GELU: aux, which stores the input of GELU, is null");
  // Required by cuBLASLt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
  require(call.n % 8 == 0, "matrix product with GELU: rows of " + std::to_string(call.n) +
                               " numbers, not a multiple of 8");
  require(call.epilogue == Epilogue::gelu || call.bias == nullptr,
          "matrix product with the gradient of GELU: a bias is not supported");
}

// Split-K computes slices of K in separate blocks and adds the partial sums in a second kernel. It
// is for weight gradients, whose results are too small to fill a GPU with tiles: 16-bit operands,
// fp32 result. K must be a multiple of 128: cuBLASLt 12.8 and 13.1 are reported to skip the tail of
// K in split plans (github.com/facebookexperimental/triton, issue 2767).
template <class TO, class TI>
bool may_split_k(const GemmCall<TO, TI>& call, const GemmOptions& options) {
  constexpr std::int64_t kSliceMultiple = 128;
  return options.split_k != SplitK::never && std::is_same_v<TO, float> &&
         sizeof(TI) < sizeof(float) && call.epilogue == Epilogue::none &&
         call.k % kSliceMultiple == 0;
}

}  // namespace llmc
