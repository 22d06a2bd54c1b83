// Causal multi-head self-attention without the (T, T) matrix.
//
// There are three sets of kernels: for tensor cores (flash_attention_forward.h, ..._backward.h),
// with fused multiply-adds in IEEE fp32 (flash_attention_forward_fma.h, ..._backward_fma.h), and
// for blocks of one thread, on the host (flash_attention_forward_one_thread.h, ...). Head sizes are
// multiples of 8 up to 128. Kernels process them in tiles of a few fixed widths, such as 32, 64 and
// 128 columns. The columns beyond the head exist only in shared memory, as zeros.
// standard_attention.h is the plain (T, T) attention that these are compared with.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/device/device.h"
#include "llmc/ops/dropout.h"

namespace llmc {

// Writes out (B, T, C) and lse (B, NH, T) from qkv (B, T, 3C), C = NH * HS:
//     out_i = sum_j p_ij v_j,  p_ij = exp(scale q_i . k_j - lse_i),
// over the keys j = doc_start[i] .. i of the same batch row. `scale`, above 0, is 1 / sqrt(HS) if
// it is not given. lse is the natural logarithm of the
// sum of exp(scaled score). doc_start (B*T) contains the first key that each query sees, as a
// position in its batch row. It never decreases along a row and doc_start[i] <= i, so that
// documents are contiguous and every query sees itself (a launch cannot check that). nullptr: one
// document per batch row.
//
// `dropout` (attention_dropout.h) applies to the probabilities, and may be off.
//
// Throws an Error if the head size is not a multiple of 8 from 8 to 128, if shapes do not match, or
// if out or qkv does not start at a multiple of 16 bytes.
//
// Dao et al. 2022 (FlashAttention), 2023 (FlashAttention-2).
template <class T>
void flash_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, In<T, 3> qkv, std::int64_t NH,
                             const std::int32_t* doc_start, Stream& stream,
                             const Dropout& dropout = {}, std::optional<float> scale = {});

// Floats of scratch that flash_attention_backward needs.
std::int64_t flash_attention_backward_scratch(std::int64_t B, std::int64_t T, std::int64_t NH,
                                              std::int64_t HS);

// Writes d_qkv (B, T, 3C), the gradient with respect to qkv, from d_out (B, T, C) and the inputs
// and outputs of the forward pass. doc_start, dropout and scale are as in the forward pass. scratch
// holds flash_attention_backward_scratch floats and starts at a multiple of 16 bytes, as do the
// tensors except lse. Bitwise repeatable: no atomics, every sum has a fixed order.
template <class T>
void flash_attention_backward(Tensor<T, 3> d_qkv, In<T, 3> d_out, In<T, 3> qkv, In<T, 3> out,
                              In<float, 3> lse, std::int64_t NH, const std::int32_t* doc_start,
                              Tensor<float, 1> scratch, Stream& stream, const Dropout& dropout = {},
                              std::optional<float> scale = {});

}  // namespace llmc
