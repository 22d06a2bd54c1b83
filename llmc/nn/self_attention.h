// Causal self-attention of one block: flash attention, or standard attention, which stores
// the (T, T) matrix. Each rank of a tensor group computes some of the heads; nothing is exchanged.
#pragma once

#include <cstdint>

#include "llmc/nn/pass.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"

namespace llmc {

// The values that the forward pass stores for the backward pass, for the NH heads of HS channels of
// a rank.
template <class T>
struct AttentionActivations {
  Tensor<T, 2> qkv;              // (B*T, 3 NH HS)
  Tensor<T, 2> attention;        // (B*T, NH HS)
  Tensor<float, 1> log_sum_exp;  // (B*NH*T)
  Tensor<T, 1> probabilities;    // (B*NH*T*T), only for standard attention
};

template <class T>
class SelfAttention {
 public:
  // The rank at `place` has its part of `heads` heads. `scale` multiplies the scores.
  SelfAttention(std::int64_t heads, std::int64_t head_size, float scale, std::int64_t layer,
                const MeshPlace& place, Attention kind)
      : layer_(layer),
        heads_(heads / place.tensor_ranks),
        first_head_(place.tensor_rank * heads_),
        head_size_(head_size),
        scale_(scale),
        kind_(kind) {}

  // Writes a.attention and what backward() reads (log_sum_exp, probabilities) from a.qkv.
  void forward(const AttentionActivations<T>& a, const Pass& pass) const {
    const Dropout dropout = dropout_of(pass);
    const Tensor<T, 3> out = pass.batched(a.attention), qkv = pass.batched(a.qkv);
    Stream& stream = pass.context.stream;
    if (kind_ == Attention::flash) {
      flash_attention_forward<T>(out, log_sum_exp(a, pass), qkv, heads_, pass.batch.doc_start,
                                 stream, dropout, scale_);
    } else {
      standard_attention_forward<T>(out, log_sum_exp(a, pass), probabilities(a, pass), qkv, heads_,
                                    pass.batch.doc_start, stream, dropout, scale_);
    }
    pass.context.outputs.rows("attention forward", layer_, a.attention, stream);
  }

  // Writes the probabilities of standard attention again, from a.qkv.
  void restore_probabilities(const AttentionActivations<T>& a, const Pass& pass) const {
    if (kind_ == Attention::flash) return;
    standard_attention_probabilities<T>(probabilities(a, pass), log_sum_exp(a, pass),
                                        pass.batched(a.qkv), heads_, pass.batch.doc_start,
                                        pass.context.stream, scale_);
  }

  // Writes d_qkv (rows, 3 NH HS) from d_out (rows, NH HS), the gradient of a.attention, for the NH
  // heads of this rank.
  void backward(Tensor<T, 2> d_qkv, In<T, 2> d_out, const AttentionActivations<T>& a,
                const Pass& pass) const {
    const Dropout dropout = dropout_of(pass);
    const DeviceBatch& batch = pass.batch;
    Context& context = pass.context;
    if (kind_ == Attention::flash) {
      flash_attention_backward<T>(pass.batched(d_qkv), pass.batched(d_out), pass.batched(a.qkv),
                                  pass.batched(a.attention), log_sum_exp(a, pass), heads_,
                                  batch.doc_start, context.scratch, context.stream, dropout,
                                  scale_);
    } else {
      standard_attention_backward<T>(pass.batched(d_qkv), probabilities(a, pass),
                                     pass.batched(d_out), pass.batched(a.qkv),
                                     pass.batched(a.attention), log_sum_exp(a, pass), heads_,
                                     context.scratch, context.stream, dropout, scale_);
    }
    context.outputs.rows("attention backward", layer_, d_qkv, context.stream);
  }

  // (B, NH, T): the logarithm of each row's softmax denominator.
  Tensor<float, 3> log_sum_exp(const AttentionActivations<T>& a, const Pass& pass) const {
    return {a.log_sum_exp.data, {pass.batch.B, heads_, pass.batch.T}};
  }

  // Number of floats in Context::scratch that backward() needs for B sequences of T tokens.
  std::int64_t scratch_size(std::int64_t B, std::int64_t T_seq) const {
    return kind_ == Attention::flash
               ? flash_attention_backward_scratch(B, T_seq, heads_, head_size_)
               : standard_attention_backward_scratch(B, T_seq, heads_);
  }

 private:
  Dropout dropout_of(const Pass& pass) const {
    Dropout dropout = attention_dropout(pass.options, layer_);
    dropout.first_plane = static_cast<std::uint32_t>(first_head_);
    return dropout;
  }

  Tensor<T, 4> probabilities(const AttentionActivations<T>& a, const Pass& pass) const {
    const std::int64_t T_seq = pass.batch.T;
    return {a.probabilities.data, {pass.batch.B, heads_, T_seq, T_seq}};
  }

  std::int64_t layer_, heads_, first_head_, head_size_;
  float scale_;
  Attention kind_;
};

}  // namespace llmc
