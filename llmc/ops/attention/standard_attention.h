// Standard causal self-attention, which stores the (T, T) matrix of probabilities of every head. It
// is the baseline that flash attention is compared with in memory, time and gradients
// (`--attention standard`). Every score is computed, including masked ones.
//
//     S = scale Q K^T,   P = softmax(S),   out = P V                              forward
//     dV = P^T dO,   dS = scale P o (dO V^T - D),   dQ = dS K,   dK = dS^T Q       backward
//
// D_i = dO_i . O_i (attention_row_terms.h). Dropout acts on P in the products with V and dO, and on
// dO V^T (attention_dropout.h). Scores and probabilities are stored in the dtype of qkv, so in half
// precision the scores are rounded one time more than in flash attention. All sums are fp32.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/dropout.h"

namespace llmc {

// Writes out (B, T, C), lse (B, NH, T) and probabilities (B, NH, T, T; before dropout) from qkv
// (B, T, 3C). doc_start, lse, dropout, scale and errors are as in flash_attention_forward
// (attention.h), but qkv needs no alignment.
template <class T>
void standard_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, Out<T, 4> probabilities,
                                In<T, 3> qkv, std::int64_t NH, const std::int32_t* doc_start,
                                Stream& stream, const Dropout& dropout = {},
                                std::optional<float> scale = {});

// The first part of standard_attention_forward: writes its probabilities and lse from qkv.
template <class T>
void standard_attention_probabilities(Out<T, 4> probabilities, Tensor<float, 3> lse, In<T, 3> qkv,
                                      std::int64_t NH, const std::int32_t* doc_start,
                                      Stream& stream, std::optional<float> scale = {});

// Floats of scratch that standard_attention_backward needs.
std::int64_t standard_attention_backward_scratch(std::int64_t B, std::int64_t T, std::int64_t NH);

// Writes d_qkv (B, T, 3C). `probabilities` holds the forward's and is overwritten with the score
// gradients; documents are already in it, as zeros. The other arguments are as in
// flash_attention_backward.
template <class T>
void standard_attention_backward(Tensor<T, 3> d_qkv, Out<T, 4> probabilities, In<T, 3> d_out,
                                 In<T, 3> qkv, In<T, 3> out, In<float, 3> lse, std::int64_t NH,
                                 Tensor<float, 1> scratch, Stream& stream,
                                 const Dropout& dropout = {}, std::optional<float> scale = {});

}  // namespace llmc
