// Products of half-precision models with a cache in fp32. No program has one; tests read the sums
// of a product from it.
#include "llmc/ops/instantiate.h"

// The definitions, without the dtypes that the programs' objects have already.
#undef LLMC_INSTANTIATE
#undef LLMC_INSTANTIATE_CACHES
#undef LLMC_INSTANTIATE_PRODUCTS
#define LLMC_INSTANTIATE(f)
#define LLMC_INSTANTIATE_CACHES(f)
#define LLMC_INSTANTIATE_PRODUCTS(f)

#include "llmc/ops/gemm/invariant_gemm.cu"
#include "llmc/ops/gemm/invariant_gemm_kernels.cu"

namespace llmc {

template decltype(invariant_gemm_qkv<bf16, float>) invariant_gemm_qkv<bf16, float>;
template decltype(invariant_gemm_qkv<fp16, float>) invariant_gemm_qkv<fp16, float>;
template decltype(run_invariant_gemm<bf16, bf16, float>) run_invariant_gemm<bf16, bf16, float>;
template decltype(run_invariant_gemm<fp16, fp16, float>) run_invariant_gemm<fp16, fp16, float>;
template decltype(launch_invariant_gemm<bf16, bf16, float>)
    launch_invariant_gemm<bf16, bf16, float>;
template decltype(launch_invariant_gemm<fp16, fp16, float>)
    launch_invariant_gemm<fp16, fp16, float>;

}  // namespace llmc
