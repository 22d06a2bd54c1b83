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

#include "llmc/ops/gemm/row_product.cu"
#include "llmc/ops/gemm/row_product_kernels.cu"

namespace llmc {

template decltype(row_product_qkv<bf16, float>) row_product_qkv<bf16, float>;
template decltype(row_product_qkv<fp16, float>) row_product_qkv<fp16, float>;
template decltype(run_row_product<bf16, bf16, float>) run_row_product<bf16, bf16, float>;
template decltype(run_row_product<fp16, fp16, float>) run_row_product<fp16, fp16, float>;
template decltype(launch_row_product<bf16, bf16, float>) launch_row_product<bf16, bf16, float>;
template decltype(launch_row_product<fp16, fp16, float>) launch_row_product<fp16, fp16, float>;

}  // namespace llmc
