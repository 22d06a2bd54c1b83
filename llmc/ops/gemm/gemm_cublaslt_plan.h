// A cuBLASLt plan for one kind of matrix product: descriptors, and algorithms that the library
// proposes. cuBLASLt is column-major, and row-major c = a·b is column-major cᵀ = bᵀ·aᵀ, so its
// first operand is our b.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "llmc/device/device.h"
#include "llmc/ops/gemm/gemm.h"

namespace llmc {

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(std::string(call) + " failed: " + cublasLtGetStatusName(status));
}

namespace cublas {

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct UniqueHandle {
  Handle handle = nullptr;
  UniqueHandle() = default;
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() {
    if (handle != nullptr) Destroy(handle);
  }
};
using Library = UniqueHandle<cublasLtHandle_t, &cublasLtDestroy>;

template <class T>
inline constexpr cudaDataType_t kDataType = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t kDataType<bf16> = CUDA_R_16BF;
template <>
inline constexpr cudaDataType_t kDataType<fp16> = CUDA_R_16F;
template <>
inline constexpr cudaDataType_t kDataType<std::int8_t> = CUDA_R_8I;
template <>
inline constexpr cudaDataType_t kDataType<std::int32_t> = CUDA_R_32I;

// Type of alpha, beta and the sums of a product with results of type TO.
template <class TO>
using SumType = std::conditional_t<std::is_same_v<TO, std::int32_t>, std::int32_t, float>;

// A plan serves every call of its shape, so it assumes only the alignment that all tensors have.
inline constexpr std::uint32_t kAlignment = 16;  // bytes
inline constexpr int kMaxProposals = 16, kMaxSplits = 16;
// A product in fewer waves of blocks uses less than half of the GPU.
inline constexpr float kFewWaves = 0.5f;
// With more waves, a smaller tile is not slower because of the last wave.
inline constexpr float kManyWaves = 4;

template <class Value>
Value algorithm_attribute(const cublasLtMatmulAlgo_t& algorithm,
                          cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value{};
  std::size_t num_bytes = 0;
  check_cublas(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &num_bytes),
      "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

inline std::int32_t num_splits(const cublasLtMatmulAlgo_t& algorithm) {
  return algorithm_attribute<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

// Returns true if the library's proposal is valid and reduces K as allowed: in one piece, or in at
// most kMaxSplits slices whose fp32 partial sums a second kernel adds in a fixed order.
inline bool is_usable(const cublasLtMatmulHeuristicResult_t& proposal, bool may_split) {
  if (proposal.state != CUBLAS_STATUS_SUCCESS) return false;  // its other fields are undefined
  const std::int32_t splits = num_splits(proposal.algo);
  if (splits <= 1) return true;
  const auto scheme =
      algorithm_attribute<std::uint32_t>(proposal.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return may_split && splits <= kMaxSplits && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

class Plan {
 public:
  template <class TO, class TI>
  Plan(const GemmCall<TO, TI>& call, const GemmOptions& options, std::size_t workspace_bytes,
       const Library& library) {
    describe(call, options.allow_tf32 && std::is_same_v<TI, float>);
    const bool may_split = may_split_k(call, options);
    find_proposals(may_split && options.split_k == SplitK::always, call, workspace_bytes, library);
    if (may_split && options.split_k == SplitK::if_idle && num_usable_ > 0 &&
        proposals_[0].wavesCount < kFewWaves) {
      find_proposals(true, call, workspace_bytes, library);
    }
    if (options.small_tiles && sizeof(TO) == 2 && sizeof(TI) == 2) put_small_tiles_first();
  }

  // Replaces the proposals by those that do not split K.
  template <class TO, class TI>
  void use_unsplit(const GemmCall<TO, TI>& call, std::size_t workspace_bytes,
                   const Library& library) {
    find_proposals(false, call, workspace_bytes, library);
  }

  bool is_checked() const { return is_checked_; }
  void set_checked() { is_checked_ = true; }

  // The usable proposals, in the library's order.
  std::span<const cublasLtMatmulHeuristicResult_t> proposals() const {
    return {proposals_.data(), static_cast<std::size_t>(num_usable_)};
  }

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
           std::size_t workspace_bytes, const Library& library, Stream& stream) {
    if (call.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    if (call.epilogue != Epilogue::none) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
    }
    const auto alpha = static_cast<SumType<TO>>(call.alpha);
    const auto beta = static_cast<SumType<TO>>(call.beta);
    check_cublas(
        cublasLtMatmul(library.handle, operation_.handle, &alpha, call.b, first_.handle, call.a,
                       second_.handle, &beta, call.addend_or_c(), output_.handle, call.c,
                       output_.handle, &algorithm, workspace, workspace_bytes, stream.handle()),
        "cublasLtMatmul");
  }

 private:
  using Layout = UniqueHandle<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;

  template <class TO, class TI>
  void describe(const GemmCall<TO, TI>& call, bool tf32) {
    const cublasComputeType_t float_sums = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_cublas(cublasLtMatmulDescCreate(
                     &operation_.handle,
                     std::is_same_v<SumType<TO>, float> ? float_sums : CUBLAS_COMPUTE_32I,
                     kDataType<SumType<TO>>),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublaslt_epilogue(call));
    // The heuristic derives the alignment of bias and aux from an address; run() sets the real
    // ones.
    const auto aligned_address = reinterpret_cast<const void*>(std::uintptr_t{kAlignment});
    if (call.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, kDataType<TO>);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_address);
    }
    if (call.epilogue != Epilogue::none) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, kDataType<TO>);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.n);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned_address);
    }
    make_layout(first_, kDataType<TI>, call.transpose_b ? call.k : call.n,
                call.transpose_b ? call.n : call.k);
    make_layout(second_, kDataType<TI>, call.transpose_a ? call.m : call.k,
                call.transpose_a ? call.k : call.m);
    make_layout(output_, kDataType<TO>, call.n, call.m);
  }

  template <class Call>
  static cublasLtEpilogue_t cublaslt_epilogue(const Call& call) {
    const bool bias = call.bias != nullptr;
    switch (call.epilogue) {
      case Epilogue::gelu:
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case Epilogue::gelu_backward:
        return CUBLASLT_EPILOGUE_DGELU;
      case Epilogue::none:
        break;
    }
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_.handle, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }

  // Column-major and dense: the leading dimension is the number of rows.
  static void make_layout(Layout& layout, cudaDataType_t type, std::int64_t rows,
                          std::int64_t columns) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout.handle, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), rows),
                 "cublasLtMatrixLayoutCreate");
  }

  template <class Call>
  void find_proposals(bool may_split, const Call& call, std::size_t workspace_bytes,
                      const Library& library) {
    UniqueHandle<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy> preference;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference.handle),
                 "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_cublas(
          cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(may_split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                : CUBLASLT_REDUCTION_SCHEME_NONE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library.handle, operation_.handle, first_.handle, second_.handle, output_.handle,
        output_.handle, preference.handle, kMaxProposals, proposals_.data(), &count);
    // NOT_SUPPORTED means no algorithm at all. An epilogue that a dtype does not support can be
    // reported as INVALID_VALUE.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
    if (status == CUBLAS_STATUS_INVALID_VALUE && call.epilogue != Epilogue::none) return;
    check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    num_usable_ = 0;
    for (int i = 0; i < count; ++i) {
      if (is_usable(proposals_[i], may_split)) proposals_[num_usable_++] = proposals_[i];
    }
  }

  // On an H100 the library's first choice has one large tile per multiprocessor, which computes
  // nothing while it loads its first operands and stores its results: long next to a sum over C
  // channels. With smaller tiles a multiprocessor has two, of which one computes at such a time.
  void put_small_tiles_first() {
    constexpr int kMeasured = 8;
    if (num_usable_ == 0 || proposals_[0].wavesCount < kManyWaves) return;
    int smallest = 0;
    for (int i = 1; i < std::min(num_usable_, kMeasured); ++i) {
      if (proposals_[i].wavesCount > proposals_[smallest].wavesCount) smallest = i;
    }
    std::swap(proposals_[0], proposals_[smallest]);
  }

  UniqueHandle<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy> operation_;
  Layout first_, second_, output_;
  // An array, because the front end of nvcc 13.0 fails on a std::vector of this struct.
  std::array<cublasLtMatmulHeuristicResult_t, kMaxProposals> proposals_{};
  int num_usable_ = 0;
  bool is_checked_ = false;  // a product that splits K has been compared with a known result
};

// Example: "algorithm 66, tile 20, stages 36, split-K 4, waves 0.98, workspace 12.0 MiB". The
// numbers are cuBLASLt's.
inline std::string proposal_text(const cublasLtMatmulHeuristicResult_t& proposal) {
  const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    return algorithm_attribute<std::int32_t>(proposal.algo, attribute);
  };
  char text[160];
  std::snprintf(text, sizeof text,
                "algorithm %d, tile %d, stages %d, split-K %d, waves %.2f, workspace %.1f MiB",
                number(CUBLASLT_ALGO_CONFIG_ID), number(CUBLASLT_ALGO_CONFIG_TILE_ID),
                number(CUBLASLT_ALGO_CONFIG_STAGES_ID), num_splits(proposal.algo),
                static_cast<double>(proposal.wavesCount),
                static_cast<double>(proposal.workspaceSize) / (1 << 20));
  return text;
}

}  // namespace cublas
}  // namespace llmc
