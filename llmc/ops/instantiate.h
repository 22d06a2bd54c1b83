// Explicit instantiation of launchers. A header declares them; the .cu file of the same name has
// the kernels, the definitions and, at its end, a line of this header for each template. Programs
// and tests link the results, so a kernel is compiled once per target.
//
// decltype names the signature, so that it is nowhere written a second time.
#pragma once

#include <cstdint>

#include "llmc/device/dtype.h"

// f<T> in the dtypes of tensors. f has one template without overloads.
#define LLMC_INSTANTIATE(f)             \
  template decltype(f<float>) f<float>; \
  template decltype(f<bf16>) f<bf16>;   \
  template decltype(f<fp16>) f<fp16>;

// f<T> in those that are narrower than fp32.
#define LLMC_INSTANTIATE_HALF(f)      \
  template decltype(f<bf16>) f<bf16>; \
  template decltype(f<fp16>) f<fp16>;

// f<T, KV> with a cache in T, in INT8, or in a narrower type than fp32.
#define LLMC_INSTANTIATE_CACHES(f)                                \
  template decltype(f<float, float>) f<float, float>;             \
  template decltype(f<float, bf16>) f<float, bf16>;               \
  template decltype(f<float, fp16>) f<float, fp16>;               \
  template decltype(f<float, std::int8_t>) f<float, std::int8_t>; \
  template decltype(f<bf16, bf16>) f<bf16, bf16>;                 \
  template decltype(f<bf16, std::int8_t>) f<bf16, std::int8_t>;   \
  template decltype(f<fp16, fp16>) f<fp16, fp16>;                 \
  template decltype(f<fp16, std::int8_t>) f<fp16, std::int8_t>;

// f<TO, TI>: results in the dtype of the operands, and fp32 sums of those that are narrower.
#define LLMC_INSTANTIATE_SUMS(f)                      \
  template decltype(f<float, float>) f<float, float>; \
  template decltype(f<bf16, bf16>) f<bf16, bf16>;     \
  template decltype(f<fp16, fp16>) f<fp16, fp16>;     \
  template decltype(f<float, bf16>) f<float, bf16>;   \
  template decltype(f<float, fp16>) f<float, fp16>;

// f<T, TO, KV> of the products of inference: layers with each kind of cache, and logits in fp32.
#define LLMC_INSTANTIATE_PRODUCTS(f)                                            \
  template decltype(f<float, float, float>) f<float, float, float>;             \
  template decltype(f<float, float, bf16>) f<float, float, bf16>;               \
  template decltype(f<float, float, fp16>) f<float, float, fp16>;               \
  template decltype(f<float, float, std::int8_t>) f<float, float, std::int8_t>; \
  template decltype(f<bf16, bf16, bf16>) f<bf16, bf16, bf16>;                   \
  template decltype(f<bf16, bf16, std::int8_t>) f<bf16, bf16, std::int8_t>;     \
  template decltype(f<fp16, fp16, fp16>) f<fp16, fp16, fp16>;                   \
  template decltype(f<fp16, fp16, std::int8_t>) f<fp16, fp16, std::int8_t>;     \
  template decltype(f<bf16, float, bf16>) f<bf16, float, bf16>;                 \
  template decltype(f<fp16, float, fp16>) f<fp16, float, fp16>;
