// A transformer block:  x += attention(ln_1(x));  x += mlp(ln_2(x))
//
// Each addition to the residual stream x is fused with the LayerNorm that follows it. A block
// therefore starts with the pending addition of the previous block and leaves its own last one
// pending.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "llmc/models/gpt2/activations.h"
#include "llmc/models/gpt2/block_backward.h"
#include "llmc/models/gpt2/workspace.h"
#include "llmc/nn/linear.h"
#include "llmc/nn/norm.h"
#include "llmc/nn/pass.h"
#include "llmc/nn/self_attention.h"
#include "llmc/ops/activation.h"

namespace llmc {

// The residual stream with a pending addition: x = sum + branch. Without a branch, x = sum.
template <class T>
struct Residual {
  Tensor<const T, 2> sum, branch;  // (rows, C)
};

// The block's own self-attention. A caller may replace it by attend(layer, out, lse, qkv), which
// may read more than the batch, such as a key-value cache. It writes out (B, T, C) from qkv (B, T,
// 3C); lse (B, NH, T) is scratch. On a tensor rank, NH and C are those of the rank's heads. A
// program that always replaces it contains no code of this attention.
struct OwnAttention {};

template <class T>
class Block {
 public:
  // The part of the block that the rank at table.place() computes.
  Block(const ModelConfig& config, std::int64_t layer, const ParameterTable& table,
        ParameterSource& source, const RunShape& run)
      : Block(layer, "h." + std::to_string(layer) + ".", config, table, source, run) {}

  // Reserves what quantized passes need. The block must not move afterwards.
  void reserve_quantization(MemoryPlan& plan) {
    for (Linear<T>* linear : {&c_attn_, &attention_c_proj_, &c_fc_, &mlp_c_proj_}) {
      linear->reserve_quantization(plan);
    }
  }

  // Reads x and returns the residual stream after the block. `a` keeps what backward() reads, or
  // what recompute() needs to restore it. If x has no branch, the caller has already written it to
  // a.input.
  template <class Attend>
  Residual<T> forward(const BlockActivations<T>& a, const Residual<T>& x, const Workspace<T>& work,
                      const Attend& attend, const Pass& pass) const {
    Context& context = pass.context;
    const Tensor<T, 2> branch = work.branch(pass.rows);
    if (x.branch.data == nullptr) {
      ln_1_.forward(a.ln_1, a.ln_1_statistics, a.input, context);
    } else {
      ln_1_.forward_sum(a.input, a.ln_1, a.ln_1_statistics, x.sum, x.branch, context);
    }
    if (a.input_piece.data != nullptr)
      context.tensor.cut<T>(a.input_piece, a.input, context.stream);
    forward_to_activation(a, branch, attend, pass);
    mlp_c_proj_.forward(branch, a.gelu, a.mlp_adapter, pass);
    pass.drop(branch, branch_dropout(pass.options, layer_, Branch::mlp));
    context.outputs.rows("dropout", layer_, branch, context.stream);
    return {a.residual_mid, branch};
  }

  // Computes what `a` does not keep again, with the same bits. Call it before backward(), which
  // does not read the output of the MLP: the last product of the block is not repeated.
  void recompute(const BlockActivations<T>& a, const Workspace<T>& work, const Pass& pass) const {
    Context& context = pass.context;
    if (a.recompute == Recompute::selective) {
      ln_1_.output(a.ln_1, a.input, a.ln_1_statistics, context);
      attention_.restore_probabilities(a, pass);
      ln_2_.output(a.ln_2, a.residual_mid, a.ln_2_statistics, context);
      activation_forward<T>(a.gelu, a.fc, activation_, context.stream);
      context.outputs.rows("activation forward", layer_, a.gelu, context.stream);
    } else if (a.recompute == Recompute::full) {
      if (a.input_piece.data != nullptr) {
        context.tensor.gather_pieces<T>(a.input, a.input_piece, context.stream);
      }
      ln_1_.forward(a.ln_1, a.ln_1_statistics, a.input, context);
      forward_to_activation(a, work.branch(pass.rows), OwnAttention(), pass);
    }
  }

  // Replaces the gradient of x after the block by the gradient of x before it, in work.d_residual,
  // if anything below the block learns. Adds to the gradients of the parameters.
  void backward(const BlockActivations<T>& a, const Workspace<T>& work, const Pass& pass) const {
    mlp_backward(a, work, pass);
    if (needed_.residual_mid) attention_backward(a, work, pass);
  }

  // The layers, for passes that compose them in another way (infer/model_pass.h).
  const Norm<T>& ln_1() const { return ln_1_; }
  const Linear<T>& c_attn() const { return c_attn_; }
  const Linear<T>& attention_c_proj() const { return attention_c_proj_; }
  const Norm<T>& ln_2() const { return ln_2_; }
  const Linear<T>& c_fc() const { return c_fc_; }
  const Linear<T>& mlp_c_proj() const { return mlp_c_proj_; }

  // Number of floats in Context::scratch that backward() needs for B sequences of T tokens, of
  // whose rows this rank has at most `own` in the residual stream.
  std::int64_t scratch_size(std::int64_t B, std::int64_t T_seq, std::int64_t own) const {
    const std::int64_t rows = B * T_seq;
    return std::max({ln_1_.scratch_size(own), c_attn_.scratch_size(rows),
                     attention_.scratch_size(B, T_seq), attention_c_proj_.scratch_size(own),
                     c_fc_.scratch_size(rows), mlp_c_proj_.scratch_size(own)});
  }

 private:
  Block(std::int64_t layer, const std::string& h, const ModelConfig& config,
        const ParameterTable& table, ParameterSource& source, const RunShape& run)
      : layer_(layer),
        activation_(config.activation),
        ln_1_(table, h + "ln_1", config.norm_epsilon, source),
        c_attn_(table, h + "attn.c_attn", run.adapters, source),
        attention_(config.heads, config.head_size(), config.attention_scale(layer), layer,
                   table.place(), run.attention),
        attention_c_proj_(table, h + "attn.c_proj", run.adapters, source),
        ln_2_(table, h + "ln_2", config.norm_epsilon, source),
        c_fc_(table, h + "mlp.c_fc", run.adapters, source),
        mlp_c_proj_(table, h + "mlp.c_proj", run.adapters, source),
        needed_(block_backward(table, layer)) {}

  // The forward pass from the output of ln_1 to the output of the activation. `branch` is scratch.
  template <class Attend>
  void forward_to_activation(const BlockActivations<T>& a, Tensor<T, 2> branch,
                             const Attend& attend, const Pass& pass) const {
    Context& context = pass.context;
    c_attn_.forward(a.qkv, a.ln_1, a.c_attn_adapter, pass);
    if constexpr (std::is_same_v<Attend, OwnAttention>) {
      attention_.forward(a, pass);
    } else {
      attend(layer_, pass.batched(a.attention), attention_.log_sum_exp(a, pass),
             Tensor<const T, 3>(pass.batched(a.qkv)));
    }
    attention_c_proj_.forward(branch, a.attention, a.attention_adapter, pass);
    pass.drop(branch, branch_dropout(pass.options, layer_, Branch::attention));
    context.outputs.rows("dropout", layer_, branch, context.stream);
    ln_2_.forward_sum(a.residual_mid, a.ln_2, a.ln_2_statistics, a.input, branch, context);
    c_fc_.forward(a.fc, a.ln_2, a.c_fc_adapter, pass);
    activation_forward<T>(a.gelu, a.fc, activation_, context.stream);
    context.outputs.rows("activation forward", layer_, a.gelu, context.stream);
  }

  void mlp_backward(const BlockActivations<T>& a, const Workspace<T>& work,
                    const Pass& pass) const {
    Context& context = pass.context;
    const RankRows& rows = pass.rows;
    const Tensor<T, 2> d_residual = work.d_residual(rows), d_btc = work.d_btc(rows);
    const Tensor<T, 2> d_fc = work.d_wide(rows, a.fc.shape[1]);
    const auto d_branch = branch_gradient(d_btc, Branch::mlp, d_residual, pass);
    mlp_c_proj_.backward(if_needed(d_fc, needed_.hidden), d_branch, a.gelu, a.mlp_adapter, pass);
    if (!needed_.hidden) return;
    activation_backward<T>(d_fc, d_fc, a.fc, activation_, context.stream);
    context.outputs.rows("activation backward", layer_, d_fc, context.stream);
    c_fc_.backward(if_needed(d_btc, needed_.mlp_input), d_fc, a.ln_2, a.c_fc_adapter, pass);
    if (!needed_.mlp_input) return;
    ln_2_.backward(d_residual, d_btc, a.residual_mid, a.ln_2_statistics, d_residual, context);
  }

  void attention_backward(const BlockActivations<T>& a, const Workspace<T>& work,
                          const Pass& pass) const {
    Context& context = pass.context;
    const RankRows& rows = pass.rows;
    const Tensor<T, 2> d_residual = work.d_residual(rows), d_btc = work.d_btc(rows);
    const Tensor<T, 2> d_attention = work.d_btc(rows, a.attention.shape[1]);
    const Tensor<T, 2> d_qkv = work.d_wide(rows, a.qkv.shape[1]);
    const auto d_branch = branch_gradient(work.d_wide(rows), Branch::attention, d_residual, pass);
    attention_c_proj_.backward(if_needed(d_attention, needed_.attention), d_branch, a.attention,
                               a.attention_adapter, pass);
    if (!needed_.attention) return;
    attention_.backward(d_qkv, d_attention, a, pass);
    c_attn_.backward(if_needed(d_btc, needed_.norm_output), d_qkv, a.ln_1, a.c_attn_adapter, pass);
    if (!needed_.norm_output) return;
    ln_1_.backward(d_residual, d_btc, a.input, a.ln_1_statistics, d_residual, context);
  }

  // Returns `gradient`, or no tensor, which a layer does not compute.
  static Tensor<T, 2> if_needed(const Tensor<T, 2>& gradient, bool is_needed) {
    Tensor<T, 2> result = gradient;
    if (!is_needed) result.data = nullptr;
    return result;
  }

  // Returns the gradient of a branch: d_residual, or with dropout its masked copy in `buffer`.
  Tensor<const T, 2> branch_gradient(Tensor<T, 2> buffer, Branch branch, In<T, 2> d_residual,
                                     const Pass& pass) const {
    const Dropout dropout = branch_dropout(pass.options, layer_, branch);
    if (!dropout.enabled()) return d_residual;
    pass.drop(buffer, d_residual, dropout);
    pass.context.outputs.rows("dropout", layer_, buffer, pass.context.stream);
    return buffer;
  }

  std::int64_t layer_;
  Activation activation_;
  Norm<T> ln_1_;
  Linear<T> c_attn_;
  SelfAttention<T> attention_;
  Linear<T> attention_c_proj_;
  Norm<T> ln_2_;
  Linear<T> c_fc_, mlp_c_proj_;
  BlockBackward needed_;
};

}  // namespace llmc
