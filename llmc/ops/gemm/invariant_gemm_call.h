// Description of a product of inference, for both targets.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/activation.h"
#include "llmc/ops/cache_rows.h"
#include "llmc/ops/gemm/code_matrix.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// Rows of a prompt, of which there are many, or generated ones, one per sequence. On a GPU each
// kind has its own kernel, and the two may differ in rounding.
enum class RowKind { prompt, generated };

// How a product with INT8 weights reads its rows.
struct RowQuantizer {
  bool enabled = false;     // false: as floats
  bool zero_points = true;  // asymmetric quantization
  bool is_fixed = false;    // with the quantization `fixed`, not that of each row
  Quantization fixed{};
};

// Where a product reports rows that cannot be quantized, because they are not finite: `site`, its
// number from 1 on, replaces a 0 at the token of the row.
struct RowFaults {
  std::int32_t* site_of_token = nullptr;  // (slots, T_max); null: no report
  std::int64_t T_max = 0;
  const std::int32_t* slot = nullptr;      // (M); null: row r belongs to slot r
  const std::int32_t* position = nullptr;  // (M)
  std::int32_t site = 0;

  __host__ __device__ void report(std::int64_t r) const {
    if (site_of_token == nullptr) return;
    std::int32_t& place = site_of_token[(slot != nullptr ? slot[r] : r) * T_max + position[r]];
    if (place == 0) place = site;
  }
};

// The inputs of a product. A row of the result depends only on its row of inp, the other inputs, N,
// K and `kind`: not on M, or on the place of the row, to the bit.
template <class T>
struct InvariantGemm {
  Tensor<const T, 2> inp;  // (M, K)
  // (K): the rows of inp are layer-normalised first, and rounded to T. No data: they are not.
  Tensor<const T, 1> norm_weight, norm_bias;
  Tensor<const T, 2> weight;  // (K, N); the logits need (N, K). No data: `codes` is the weight
  CodeMatrix codes;           // INT8 weights
  RowQuantizer quantizer;     // only with INT8 weights
  RowFaults faults;
  Activation activation = Activation::gelu_new;
  const float* gelu_factors = nullptr;  // (N): the results of the activation are multiplied by them
  Tensor<const T, 1> bias;              // (N); no data: none
  RowKind kind = RowKind::generated;
  float norm_epsilon = 1e-5f;  // added to the variance
};

// The operation on a sum after the bias is added.
enum class RowEpilogue {
  store,       // out = s
  activation,  // out = f(s), f the activation function
  add,         // out = residual + s
  qkv,         // the first third of the columns to out, the others to the caches
  logits,      // out = s, in fp32; the weight is (N, K)
};

// The arguments of a launch. TO is the type of out: float for the logits, T otherwise.
template <class T, class TO, class KV>
struct InvariantGemmCall {
  RowEpilogue epilogue = RowEpilogue::store;
  RowKind kind = RowKind::generated;
  std::int64_t M = 0, N = 0, K = 0;
  const T* inp = nullptr;
  const T* norm_weight = nullptr;
  const T* norm_bias = nullptr;
  float norm_epsilon = 0;
  const T* weight = nullptr;
  CodeMatrix codes;
  RowQuantizer quantizer;
  RowFaults faults;
  Activation activation = Activation::gelu_new;
  const float* gelu_factors = nullptr;
  const T* bias = nullptr;
  TO* out = nullptr;
  std::int64_t out_stride = 0;  // elements between rows of out
  const T* residual = nullptr;
  // Only qkv: keys and values (slots, T_max, C) with C = N / 3.
  KV* keys = nullptr;
  KV* values = nullptr;
  std::int64_t T_max = 0;
  const std::int32_t* slot = nullptr;  // (M); null: row r belongs to slot r
  const std::int32_t* position = nullptr;
  // Only qkv with KV int8 (invariant_gemm_heads.h): scales (slots, T_max, NH), and memory for sums.
  float* key_scales = nullptr;
  float* value_scales = nullptr;
  std::int64_t NH = 0;
  float* head_sums = nullptr;  // (M, 2C)
  std::int32_t* head_counters = nullptr;

  __host__ __device__ std::int64_t C() const { return N / 3; }
  // The token of the cache, counted through all slots, that row r of the product belongs to.
  __host__ __device__ std::int64_t cache_token(std::int64_t r) const {
    return (slot != nullptr ? slot[r] : r) * T_max + position[r];
  }
  // First element of the cache row that row r of the product is written to.
  __host__ __device__ std::int64_t cache_row(std::int64_t r) const { return cache_token(r) * C(); }
};

// Runs a call whose arguments were checked (invariant_gemm_checks.h), by the target's kernels.
template <class T, class TO, class KV>
void run_invariant_gemm(const InvariantGemmCall<T, TO, KV>& call, Stream& stream);

}  // namespace llmc
