// Causal multi-head self-attention without the (T, T) matrix: checks and choice of the kernel.
//
// There are two sets of kernels: one for tensor cores (flash_attention_forward.h, ..._backward.h),
// and one with fused multiply-adds in IEEE fp32 (flash_attention_forward_fma.h,
// ..._backward_fma.h). Head sizes are multiples of 8 up to 128. Kernels process them in tiles of a
// few fixed widths, such as 32, 64 and 128 columns. The columns beyond the head exist only in
// shared memory, as zeros. standard_attention.h is the plain (T, T) attention that these are
// compared with.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/flash_attention_backward.h"
#include "llmc/ops/attention/flash_attention_backward_fma.h"
#include "llmc/ops/attention/flash_attention_forward.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"

namespace llmc {

// How a kernel computes its products.
enum class AttentionProducts { tensor_cores, fma };

// fp32 needs IEEE arithmetic; half precision runs on tensor cores. The host executor emulates a
// tensor core lane by lane, a hundred times slower than multiply-adds in the SIMD registers of one
// thread. So half precision uses them too if a block is one thread: widened to fp32, its products
// are exact on both. With the block sizes of a GPU, the host runs (and checks) the GPU's kernels.
template <class T>
inline constexpr AttentionProducts kAttentionProducts =
    std::is_same_v<T, float> || kOneThreadBlocks ? AttentionProducts::fma
                                                 : AttentionProducts::tensor_cores;

// Work of `products` matrix products over all visible pairs of a query and a key. With documents,
// only the device knows these pairs, so no work is counted.
inline Work attention_work(const AttentionShape& shape, const std::int32_t* doc_start,
                           int products) {
  if (doc_start != nullptr) return {};
  const auto T = static_cast<double>(shape.T);
  const double pairs = static_cast<double>(shape.B * shape.NH) * T * (T + 1) / 2;
  return {.flops = 2.0 * products * pairs * static_cast<double>(shape.HS), .bytes = 0};
}

template <bool kDropout, AttentionProducts kProducts, class T>
void launch_flash_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, In<T, 3> qkv,
                                    std::int64_t NH, const std::int32_t* doc_start,
                                    const Dropout& dropout, Stream& stream) {
  const AttentionShape shape = check_attention("out", out, NH);
  check_shape("qkv", qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("lse", lse, {shape.B, NH, shape.T});
  check_alignment("qkv", qkv.data);
  const ProfileScope scope("attention forward", stream, attention_work(shape, doc_start, 2));
  if constexpr (kProducts == AttentionProducts::fma) {
    launch_flash_forward_fma<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape, dropout,
                                          stream);
  } else {
    launch_flash_forward<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape, dropout,
                                      stream);
  }
}

// Writes out (B, T, C) and lse (B, NH, T) from qkv (B, T, 3C), C = NH * HS:
//     out_i = sum_j p_ij v_j,  p_ij = exp(q_i . k_j / sqrt(HS) - lse_i),
// over the keys j = doc_start[i] .. i of the same batch row. lse is the natural logarithm of the
// sum of exp(scaled score). doc_start (B*T) contains the first key that each query sees, as a
// position in its batch row. It never decreases along a row and doc_start[i] <= i, so that
// documents are contiguous and every query sees itself (a launch cannot check that). nullptr: one
// document per batch row.
//
// Throws an Error if the head size is not a multiple of 8 from 8 to 128, if shapes do not match, or
// if out or qkv does not start at a multiple of 16 bytes.
//
// Dao et al. 2022 (FlashAttention), 2023 (FlashAttention-2).
template <class T, AttentionProducts kProducts = kAttentionProducts<T>>
void flash_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, In<T, 3> qkv, std::int64_t NH,
                             const std::int32_t* doc_start, Stream& stream) {
  launch_flash_attention_forward<false, kProducts, T>(out, lse, qkv, NH, doc_start, Dropout{},
                                                      stream);
}

// The same with dropout of the probabilities (attention_dropout.h), which may be off.
template <class T, AttentionProducts kProducts = kAttentionProducts<T>>
void flash_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, In<T, 3> qkv, std::int64_t NH,
                             const std::int32_t* doc_start, const Dropout& dropout,
                             Stream& stream) {
  dispatch_dropout(dropout, [&]<bool kDropout>() {
    launch_flash_attention_forward<kDropout, kProducts, T>(out, lse, qkv, NH, doc_start, dropout,
                                                           stream);
  });
}

// Floats of scratch that flash_attention_backward needs.
inline std::int64_t flash_attention_backward_scratch(std::int64_t B, std::int64_t T,
                                                     std::int64_t NH,
                                                     [[maybe_unused]] std::int64_t HS) {
  return row_terms_floats(B, T, NH);
}

// Writes d_qkv (B, T, 3C), the gradient with respect to qkv, from d_out (B, T, C) and the inputs
// and outputs of the forward pass. doc_start and dropout are as in the forward pass. scratch holds
// flash_attention_backward_scratch floats and starts at a multiple of 16 bytes, as do the tensors
// except lse. Bitwise repeatable: no atomics, every sum has a fixed order.
template <class T, AttentionProducts kProducts = kAttentionProducts<T>>
void flash_attention_backward(Tensor<T, 3> d_qkv, In<T, 3> d_out, In<T, 3> qkv, In<T, 3> out,
                              In<float, 3> lse, std::int64_t NH, const std::int32_t* doc_start,
                              const Dropout& dropout, Tensor<float, 1> scratch, Stream& stream) {
  const AttentionShape shape = check_attention("out", out, NH);
  check_shape("d_out", d_out, {shape.B, shape.T, shape.C()});
  check_shape("d_qkv", d_qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("qkv", qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("lse", lse, {shape.B, NH, shape.T});
  check_alignment("d_qkv", d_qkv.data);
  check_alignment("d_out", d_out.data);
  check_alignment("qkv", qkv.data);
  check_row_terms_scratch(scratch, shape);
  const ProfileScope scope("attention backward", stream, attention_work(shape, doc_start, 5));
  const RowTerms terms =
      compute_row_terms(scratch.data, out.data, d_out.data, lse.data, shape, stream);
  dispatch_dropout(dropout, [&]<bool kDropout>() {
    if constexpr (kProducts == AttentionProducts::fma) {
      launch_flash_backward_fma<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms, doc_start,
                                             shape, dropout, stream);
    } else {
      launch_flash_backward<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms, doc_start, shape,
                                         dropout, stream);
    }
  });
}

// The same without dropout.
template <class T, AttentionProducts kProducts = kAttentionProducts<T>>
void flash_attention_backward(Tensor<T, 3> d_qkv, In<T, 3> d_out, In<T, 3> qkv, In<T, 3> out,
                              In<float, 3> lse, std::int64_t NH, const std::int32_t* doc_start,
                              Tensor<float, 1> scratch, Stream& stream) {
  flash_attention_backward<T, kProducts>(d_qkv, d_out, qkv, out, lse, NH, doc_start, Dropout{},
                                         scratch, stream);
}

}  // namespace llmc
