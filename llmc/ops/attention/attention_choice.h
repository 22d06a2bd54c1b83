// The choice of the kernels of flash attention by dtype, and the work of both passes (attention.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"

namespace llmc {

// True if the products of T run on tensor cores. fp32 needs IEEE arithmetic; half precision runs on
// tensor cores. The host executor emulates a tensor core lane by lane, a hundred times slower than
// the SIMD registers of one thread. So every dtype uses these if a block is one thread. With the
// block sizes of a GPU, the host runs (and checks) the GPU's kernels.
template <class T>
inline constexpr bool kTensorCoreAttention = !std::is_same_v<T, float> && !kOneThreadBlocks;

// Work of `products` matrix products over all visible pairs of a query and a key. With documents,
// only the device knows these pairs, so no work is counted.
inline Work attention_work(const AttentionShape& shape, const std::int32_t* doc_start,
                           int products) {
  if (doc_start != nullptr) return {};
  const auto T = static_cast<double>(shape.T);
  const double pairs = static_cast<double>(shape.B * shape.NH) * T * (T + 1) / 2;
  return {.flops = 2.0 * products * pairs * static_cast<double>(shape.HS), .bytes = 0};
}

}  // namespace llmc
