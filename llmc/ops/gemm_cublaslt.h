// Matrix products on the GPU: cuBLASLt, with a plan (layouts, algorithm) made once for each shape.
// The plan is the first heuristic that does not split K: splitting adds partial sums in an order
// that depends on the GPU. Row-major c = a·b is column-major cᵀ = bᵀ·aᵀ, which is what cuBLASLt,
// a column-major library, is given: its first operand is our b.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/gemm.h"

namespace llmc {

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(std::string(call) + " failed: " + cublasLtGetStatusName(status));
}

namespace cublas {

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) Destroy(handle);
  }
};

template <class T>
inline constexpr cudaDataType_t kDataType = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t kDataType<bf16> = CUDA_R_16BF;
template <>
inline constexpr cudaDataType_t kDataType<fp16> = CUDA_R_16F;

struct Plan {
  Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy> operation;
  Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy> first, second, output;
  cublasLtMatmulAlgo_t algorithm;
};

}  // namespace cublas

class Gemm {
 public:
  // allow_tf32: fp32 products may round their operands to TF32 (10 bits of mantissa).
  explicit Gemm(bool allow_tf32 = false) : allow_tf32_(allow_tf32), workspace_(kWorkspaceBytes) {
    check_cublas(cublasLtCreate(&library_.handle), "cublasLtCreate");
  }

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    const cublas::Plan& plan = plan_for(call);
    if (call.bias != nullptr) set_bias(plan, call.bias);
    check_cublas(cublasLtMatmul(library_.handle, plan.operation.handle, &call.alpha, call.b,
                                plan.first.handle, call.a, plan.second.handle, &call.beta, call.c,
                                plan.output.handle, call.c, plan.output.handle, &plan.algorithm,
                                workspace_.data(), kWorkspaceBytes, stream.handle()),
                 "cublasLtMatmul");
  }

 private:
  static constexpr std::size_t kWorkspaceBytes = 32 << 20;
  // A plan serves every call of its shape: promise only what all tensors have.
  static constexpr std::uint32_t kAlignment = 16;
  using Key = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t, bool, int, int>;

  template <class TO, class TI>
  const cublas::Plan& plan_for(const GemmCall<TO, TI>& call) {
    const Key key{call.transpose_a,
                  call.transpose_b,
                  call.m,
                  call.n,
                  call.k,
                  call.bias != nullptr,
                  static_cast<int>(cublas::kDataType<TO>),
                  static_cast<int>(cublas::kDataType<TI>)};
    auto& plan = plans_[key];
    if (!plan) {
      auto made = std::make_unique<cublas::Plan>();
      describe(call, *made);
      choose_algorithm(call, *made);
      plan = std::move(made);
    }
    return *plan;
  }

  template <class TO, class TI>
  void describe(const GemmCall<TO, TI>& call, cublas::Plan& plan) const {
    const bool tf32 = allow_tf32_ && std::is_same_v<TI, float>;
    check_cublas(cublasLtMatmulDescCreate(&plan.operation.handle,
                                          tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                          CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(plan, CUBLASLT_MATMUL_DESC_TRANSA, call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan, CUBLASLT_MATMUL_DESC_TRANSB, call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (call.bias != nullptr) {
      set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublas::kDataType<TO>);
      // Until run() sets the real one: the heuristic reads off an address how aligned a bias is.
      set_bias(plan, reinterpret_cast<const void*>(std::uintptr_t{kAlignment}));
    }
    make_layout(plan.first.handle, cublas::kDataType<TI>, call.transpose_b ? call.k : call.n,
                call.transpose_b ? call.n : call.k);
    make_layout(plan.second.handle, cublas::kDataType<TI>, call.transpose_a ? call.m : call.k,
                call.transpose_a ? call.k : call.m);
    make_layout(plan.output.handle, cublas::kDataType<TO>, call.n, call.m);
  }

  template <class Value>
  static void set(const cublas::Plan& plan, cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublas(
        cublasLtMatmulDescSetAttribute(plan.operation.handle, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
  }

  static void set_bias(const cublas::Plan& plan, const void* bias) {
    set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  // Column-major and dense: the leading dimension is the number of rows.
  static void make_layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, std::int64_t rows,
                          std::int64_t columns) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), rows),
                 "cublasLtMatrixLayoutCreate");
  }

  template <class TO, class TI>
  void choose_algorithm(const GemmCall<TO, TI>& call, cublas::Plan& plan) const {
    cublas::Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy> preference;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference.handle),
                 "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_cublas(
          cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(
                     library_.handle, plan.operation.handle, plan.first.handle, plan.second.handle,
                     plan.output.handle, plan.output.handle, preference.handle, 1, &found, &count),
                 "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) {
      fail("cuBLASLt has no algorithm for a matrix product of " + std::to_string(call.m) + " x " +
           std::to_string(call.k) + " by " + std::to_string(call.k) + " x " +
           std::to_string(call.n));
    }
    plan.algorithm = found.algo;
  }

  bool allow_tf32_;
  Buffer<unsigned char> workspace_;
  cublas::Owned<cublasLtHandle_t, &cublasLtDestroy> library_;
  std::map<Key, std::unique_ptr<cublas::Plan>> plans_;
};

}  // namespace llmc
