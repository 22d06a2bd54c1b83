// Causal self-attention of one block: flash attention, or standard attention, which stores
// the (T, T) matrix.
#pragma once

#include <cstdint>

#include "llmc/model/activations.h"
#include "llmc/model/pass.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"

namespace llmc {

template <class T>
class SelfAttention {
 public:
  SelfAttention(const Gpt2Config& config, std::int64_t layer, Attention kind)
      : layer_(layer), heads_(config.heads), head_size_(config.head_size()), kind_(kind) {}

  // Writes a.attention and what backward() reads (log_sum_exp, probabilities) from a.qkv.
  void forward(const BlockActivations<T>& a, const Pass& pass) const {
    const Dropout dropout = attention_dropout(pass.options, layer_);
    const Tensor<T, 3> out = pass.batched(a.attention), qkv = pass.batched(a.qkv);
    Stream& stream = pass.context.stream;
    if (kind_ == Attention::flash) {
      flash_attention_forward<T>(out, log_sum_exp(a, pass), qkv, heads_, pass.batch.doc_start,
                                 dropout, stream);
    } else {
      standard_attention_forward<T>(out, log_sum_exp(a, pass), probabilities(a, pass), qkv, heads_,
                                    pass.batch.doc_start, stream, dropout);
    }
  }

  // Writes d_qkv (rows, 3C) from d_out (rows, C), the gradient of a.attention.
  void backward(Tensor<T, 2> d_qkv, In<T, 2> d_out, const BlockActivations<T>& a,
                const Pass& pass) const {
    const Dropout dropout = attention_dropout(pass.options, layer_);
    auto& [batch, options, context] = pass;
    if (kind_ == Attention::flash) {
      flash_attention_backward<T>(pass.batched(d_qkv), pass.batched(d_out), pass.batched(a.qkv),
                                  pass.batched(a.attention), log_sum_exp(a, pass), heads_,
                                  batch.doc_start, dropout, context.scratch, context.stream);
    } else {
      standard_attention_backward<T>(pass.batched(d_qkv), probabilities(a, pass),
                                     pass.batched(d_out), pass.batched(a.qkv),
                                     pass.batched(a.attention), log_sum_exp(a, pass), heads_,
                                     context.scratch, context.stream, dropout);
    }
  }

  // (B, NH, T): the logarithm of each row's softmax denominator.
  Tensor<float, 3> log_sum_exp(const BlockActivations<T>& a, const Pass& pass) const {
    return {a.log_sum_exp.data, {pass.batch.B, heads_, pass.batch.T}};
  }

  // Number of floats in Context::scratch that backward() needs for B sequences of T tokens.
  std::int64_t scratch_size(std::int64_t B, std::int64_t T_seq) const {
    return kind_ == Attention::flash
               ? flash_attention_backward_scratch(B, T_seq, heads_, head_size_)
               : standard_attention_backward_scratch(B, T_seq, heads_);
  }

 private:
  Tensor<T, 4> probabilities(const BlockActivations<T>& a, const Pass& pass) const {
    const std::int64_t T_seq = pass.batch.T;
    return {a.probabilities.data, {pass.batch.B, heads_, T_seq, T_seq}};
  }

  std::int64_t layer_, heads_, head_size_;
  Attention kind_;
};

}  // namespace llmc
