// GPT-2 (Radford et al., 2019) as a composition of ops, forward and backward.
//
//   x = wte[token] + wpe[position]
//   for each block:  x += attention(ln_1(x));  x += mlp(ln_2(x))
//   logits = ln_f(x) · wteᵀ
//
// Each addition to the residual stream x is fused with the LayerNorm that follows it, so a block
// begins by adding the branch that the block before it left behind. The logits exist in chunks of
// rows only: a chunk's loss and gradients are taken before the next chunk is computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/gpt2_config.h"
#include "llmc/device/device.h"
#include "llmc/model/activations.h"
#include "llmc/model/device_batch.h"
#include "llmc/model/layer_parameters.h"
#include "llmc/model/parameter_source.h"
#include "llmc/model/parameters.h"
#include "llmc/model/pass_options.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm/linear.h"
#include "llmc/ops/layernorm.h"

namespace llmc {

template <class T>
class Gpt2 {
 public:
  // Reserves memory in the plan; usable after plan.allocate(). `table` outlives the model.
  Gpt2(const Gpt2Config& config, const ParameterTable& table, const RunShape& run, MemoryPlan& plan)
      : config_(config),
        run_(run),
        wte_(table.find("wte.weight")),
        wpe_(table.find("wpe.weight")),
        ln_f_(norm_specs(table, "ln_f")) {
    if (run.T > config.context) {
      fail("sequences of " + std::to_string(run.T) + " tokens for a model with a context of " +
               std::to_string(config.context),
           "--seq-len is at most --context");
    }
    for (std::int64_t l = 0; l < config.layers; ++l) blocks_.push_back(block_specs(table, l));
    activations_.reserve(plan, config, run);
  }
  Gpt2(const Gpt2&) = delete;
  Gpt2& operator=(const Gpt2&) = delete;

  const Gpt2Config& config() const { return config_; }

  // Runs the stack: afterwards hidden() are the final, normalised states.
  void forward(ParameterSource<T>& source, const DeviceBatch& batch, Gemm& gemm, Stream& stream) {
    run_blocks({source, batch, gemm, stream, batch.rows(), {}});
  }

  // The same with the caller's attention, which may see more than this batch: attend(layer, out,
  // lse, qkv) writes out (B, T, C) from qkv (B, T, 3C); lse (B, NH, T) is there for its use.
  template <class Attend>
  void forward(ParameterSource<T>& source, const DeviceBatch& batch, Gemm& gemm, Stream& stream,
               Attend&& attend) {
    run_blocks({source, batch, gemm, stream, batch.rows(), {}}, attend);
  }

  // (B*T, C), of the last forward pass.
  Tensor<const T, 2> hidden(const DeviceBatch& batch) const {
    return first_rows(activations_.ln_f, batch.rows());
  }

  // losses (B*T) of the last forward pass, not summed: for evaluation.
  Tensor<const float, 1> losses(ParameterSource<T>& source, const DeviceBatch& batch, Gemm& gemm,
                                Stream& stream) {
    const Pass pass{source, batch, gemm, stream, batch.rows(), {}};
    source.acquire(0);
    for_each_chunk(pass, [&](const Chunk& chunk) {
      classifier_loss<T>(chunk.losses, chunk.logits, chunk.targets, config_.vocabulary, stream);
    });
    source.release(0);
    return first_rows(activations_.losses, pass.rows);
  }

  // The logits of one row of the last forward pass, (1, Vp); columns from V on mean nothing.
  Tensor<const T, 2> logits_of_row(ParameterSource<T>& source, std::int64_t row, Gemm& gemm,
                                   Stream& stream) {
    source.acquire(0);
    const Tensor<T, 2> logits = first_rows(activations_.logits, 1);
    head(logits, some_rows(activations_.ln_f, row, 1), source, gemm, stream);
    source.release(0);
    return logits;
  }

  // Forward and backward of one micro-batch: gradients of dloss × the sum of the losses are added
  // to the source's; loss_sum (1) += loss_share × the sum of the losses.
  void forward_backward(ParameterSource<T>& source, const DeviceBatch& batch, float dloss,
                        Tensor<float, 1> loss_sum, float loss_share, Gemm& gemm, Stream& stream,
                        const PassOptions& options = {}) {
    const Pass pass{source, batch, gemm, stream, batch.rows(), options};
    run_blocks(pass);
    head_backward(pass, dloss, loss_sum, loss_share);
    const ProfileScope scope("backward", stream);
    final_norm_backward(pass);
    for (std::int64_t l = config_.layers - 1; l >= 0; --l) {
      const int block = static_cast<int>(l) + 1;
      source.acquire(block);
      mlp_backward(pass, l);
      attention_branch_backward(pass, l);
      source.release(block);
      source.gradients_ready(block);
    }
    source.acquire(0);
    drop(pass, rows_of(activations_.d_residual, pass), embedding_dropout(pass.options));
    embedding_backward<T>(gradient2(source, wte_), gradient2(source, wpe_),
                          rows_of(activations_.d_residual, pass), batch.buckets, batch.T, stream);
    source.release(0);
    source.gradients_ready(0);
  }

 private:
  // What every step of a pass over the model needs.
  struct Pass {
    ParameterSource<T>& source;
    const DeviceBatch& batch;
    Gemm& gemm;
    Stream& stream;
    std::int64_t rows;
    PassOptions options;
  };
  struct Chunk {
    std::int64_t first, count;
    Tensor<T, 2> logits;                    // (count, Vp)
    Tensor<float, 1> losses;                // (count)
    Tensor<const std::int32_t, 1> targets;  // (count)
  };

  template <class X>
  static auto rows_of(X tensor, const Pass& pass) {
    return first_rows(tensor, pass.rows);
  }

  // ---- weights and gradients as tensors ----

  Tensor<const T, 2> embedding(ParameterSource<T>& source) const { return weight2(source, wte_); }
  Tensor<const T, 2> positions(ParameterSource<T>& source) const { return weight2(source, wpe_); }

  // ---- forward ----

  // The stack, up to hidden(): with attention of the batch's tokens to each other, or the caller's.
  void run_blocks(const Pass& pass) {
    run_blocks(pass, [&](std::int64_t l, Tensor<T, 3> out, Tensor<float, 3> lse,
                         Tensor<const T, 3> qkv) { attention_forward(pass, l, out, lse, qkv); });
  }
  template <class Attend>
  void run_blocks(const Pass& pass, Attend&& attend) {
    require(pass.batch.T <= run_.T && pass.rows <= run_.rows(),
            "a batch larger than the model was built for");
    const ProfileScope scope("forward", pass.stream);
    pass.source.acquire(0);
    embedding_forward<T>(rows_of(activations_.block(0).input, pass), pass.batch.tokens,
                         embedding(pass.source), positions(pass.source), pass.batch.first_position,
                         pass.batch.T, pass.stream);
    drop(pass, rows_of(activations_.block(0).input, pass), embedding_dropout(pass.options));
    pass.source.release(0);
    for (std::int64_t l = 0; l < config_.layers; ++l) {
      pass.source.acquire(static_cast<int>(l) + 1);
      block_forward(pass, l, attend);
      pass.source.release(static_cast<int>(l) + 1);
    }
    const int last = static_cast<int>(config_.layers) + 1;
    pass.source.acquire(last);
    drop_branch(pass, config_.layers - 1, Branch::mlp);
    const auto& top = activations_.blocks.back();
    residual_layernorm_forward<T>(
        rows_of(activations_.final, pass), rows_of(activations_.ln_f, pass),
        rows_of(activations_.ln_f_mean, pass), rows_of(activations_.ln_f_rstd, pass),
        rows_of(top.middle, pass), rows_of(activations_.branch, pass),
        weight(pass.source, ln_f_.weight), weight(pass.source, ln_f_.bias), kLayerNormEpsilon,
        pass.stream);
    pass.source.release(last);
  }

  template <class Attend>
  void block_forward(const Pass& pass, std::int64_t l, Attend& attend) {
    BlockActivations<T>& a = activations_.block(l);
    const BlockSpecs& specs = blocks_[l];
    Stream& stream = pass.stream;
    const auto branch = rows_of(activations_.branch, pass);
    const auto w = [&](const ParameterSpec& spec) { return weight(pass.source, spec); };

    if (l == 0) {
      layernorm_forward<T>(rows_of(a.ln_1, pass), rows_of(a.ln_1_mean, pass),
                           rows_of(a.ln_1_rstd, pass), rows_of(a.input, pass), w(specs.ln_1.weight),
                           w(specs.ln_1.bias), kLayerNormEpsilon, stream);
    } else {
      drop_branch(pass, l - 1, Branch::mlp);
      residual_layernorm_forward<T>(
          rows_of(a.input, pass), rows_of(a.ln_1, pass), rows_of(a.ln_1_mean, pass),
          rows_of(a.ln_1_rstd, pass), rows_of(activations_.block(l - 1).middle, pass), branch,
          w(specs.ln_1.weight), w(specs.ln_1.bias), kLayerNormEpsilon, stream);
    }
    apply_linear(pass, specs.qkv, rows_of(a.qkv, pass), rows_of(a.ln_1, pass));
    attend(l, batched(a.attention, pass), log_sum_exp(a, pass), batched(a.qkv, pass));
    apply_linear(pass, specs.attention_out, branch, rows_of(a.attention, pass));
    drop_branch(pass, l, Branch::attention);
    residual_layernorm_forward<T>(rows_of(a.middle, pass), rows_of(a.ln_2, pass),
                                  rows_of(a.ln_2_mean, pass), rows_of(a.ln_2_rstd, pass),
                                  rows_of(a.input, pass), branch, w(specs.ln_2.weight),
                                  w(specs.ln_2.bias), kLayerNormEpsilon, stream);
    apply_linear(pass, specs.mlp_in, rows_of(a.hidden, pass), rows_of(a.ln_2, pass));
    gelu_forward<T>(rows_of(a.gelu, pass), rows_of(a.hidden, pass), stream);
    apply_linear(pass, specs.mlp_out, branch, rows_of(a.gelu, pass));
  }

  void apply_linear(const Pass& pass, const LinearSpecs& specs, Tensor<T, 2> out,
                    Tensor<const T, 2> inp) const {
    linear_forward<T>(out, inp, weight2(pass.source, specs.weight), weight(pass.source, specs.bias),
                      pass.gemm, pass.stream);
  }

  // ---- dropout ----

  static void drop(const Pass& pass, Tensor<T, 2> x, const Dropout& dropout) {
    if (dropout.on()) apply_dropout<T>(x, x, pass.batch.T, dropout, pass.stream);
  }
  // What the branch left behind, before it is added.
  void drop_branch(const Pass& pass, std::int64_t l, Branch branch) {
    drop(pass, rows_of(activations_.branch, pass), branch_dropout(pass.options, l, branch));
  }
  // The gradient of a branch: that of the residual stream, which goes on unchanged, with the
  // branch's mask; in `room` where there is one.
  Tensor<const T, 2> branch_gradient(const Pass& pass, std::int64_t l, Branch branch,
                                     Tensor<T, 2> room) {
    const Tensor<const T, 2> d_residual = rows_of(activations_.d_residual, pass);
    const Dropout dropout = branch_dropout(pass.options, l, branch);
    if (!dropout.on()) return d_residual;
    apply_dropout<T>(room, d_residual, pass.batch.T, dropout, pass.stream);
    return room;
  }

  // ---- attention, of either kind ----

  template <class X>
  static Tensor<X, 3> batched(Tensor<X, 2> tensor, const Pass& pass) {
    return {tensor.data, {pass.batch.B, pass.batch.T, tensor.shape[1]}};
  }
  Tensor<float, 3> log_sum_exp(const BlockActivations<T>& a, const Pass& pass) const {
    return {a.log_sum_exp.data, {pass.batch.B, config_.heads, pass.batch.T}};
  }
  Tensor<T, 4> probabilities(const BlockActivations<T>& a, const DeviceBatch& batch) const {
    return {a.probabilities.data, {batch.B, config_.heads, batch.T, batch.T}};
  }

  void attention_forward(const Pass& pass, std::int64_t l, Tensor<T, 3> out, Tensor<float, 3> lse,
                         Tensor<const T, 3> qkv) {
    const Dropout dropout = attention_dropout(pass.options, l);
    const DeviceBatch& batch = pass.batch;
    if (run_.attention == Attention::flash) {
      flash_attention_forward<T>(out, lse, qkv, config_.heads, batch.doc_start, dropout,
                                 pass.stream);
    } else {
      standard_attention_forward<T>(out, lse, probabilities(activations_.block(l), batch), qkv,
                                    config_.heads, batch.doc_start, pass.stream, dropout);
    }
  }

  void attention_backward(const Pass& pass, std::int64_t l, Tensor<T, 2> d_qkv,
                          Tensor<const T, 2> d_out) {
    const BlockActivations<T>& a = activations_.block(l);
    const Dropout dropout = attention_dropout(pass.options, l);
    if (run_.attention == Attention::flash) {
      flash_attention_backward<T>(batched(d_qkv, pass), batched(d_out, pass), batched(a.qkv, pass),
                                  batched(a.attention, pass), log_sum_exp(a, pass), config_.heads,
                                  pass.batch.doc_start, dropout, activations_.scratch, pass.stream);
    } else {
      standard_attention_backward<T>(batched(d_qkv, pass), probabilities(a, pass.batch),
                                     batched(d_out, pass), batched(a.qkv, pass),
                                     batched(a.attention, pass), log_sum_exp(a, pass),
                                     config_.heads, activations_.scratch, pass.stream, dropout);
    }
  }

  // ---- the head, in chunks of rows ----

  void head(Tensor<T, 2> logits, Tensor<const T, 2> hidden, ParameterSource<T>& source, Gemm& gemm,
            Stream& stream) const {
    const ProfileScope scope("logits", stream);
    matmul(logits, hidden, Transpose::no, embedding(source), Transpose::yes, 0.0f,
           static_cast<const T*>(nullptr), gemm, stream);
  }

  // use(chunk) with the logits of each chunk of rows in turn.
  template <class Use>
  void for_each_chunk(const Pass& pass, Use&& use) {
    for (std::int64_t first = 0; first < pass.rows; first += run_.chunk_rows()) {
      const std::int64_t count = std::min(run_.chunk_rows(), pass.rows - first);
      const Chunk chunk{first, count, first_rows(activations_.logits, count),
                        some_rows(activations_.losses, first, count),
                        some_rows(pass.batch.targets, first, count)};
      head(chunk.logits, some_rows(activations_.ln_f, first, count), pass.source, pass.gemm,
           pass.stream);
      use(chunk);
    }
  }

  // Losses, their sum, and the gradient of ln_f's output in d_narrow.
  void head_backward(const Pass& pass, float dloss, Tensor<float, 1> loss_sum, float loss_share) {
    const ProfileScope scope("head", pass.stream);
    constexpr const T* kNoBias = nullptr;
    pass.source.acquire(0);
    const Tensor<float, 2> d_wte = gradient2(pass.source, wte_);
    for_each_chunk(pass, [&](const Chunk& chunk) {
      fused_classifier<T>(chunk.logits, chunk.losses, chunk.targets, dloss, config_.vocabulary,
                          pass.stream, pass.options.dloss_factor);
      const Tensor<const T, 2> d_logits = chunk.logits;
      const Tensor<const T, 2> hidden = some_rows(activations_.ln_f, chunk.first, chunk.count);
      if (d_wte.data != nullptr) {
        const ProfileScope part("logits weight gradient", pass.stream);
        matmul(d_wte, d_logits, Transpose::yes, hidden, Transpose::no, 1.0f, kNoBias, pass.gemm,
               pass.stream);
      }
      const ProfileScope part("logits input gradient", pass.stream);
      matmul(some_rows(activations_.d_narrow, chunk.first, chunk.count), d_logits, Transpose::no,
             embedding(pass.source), Transpose::no, 0.0f, kNoBias, pass.gemm, pass.stream);
    });
    pass.source.release(0);
    sum_losses(loss_sum, first_rows(activations_.losses, pass.rows), loss_share, pass.stream);
  }

  // ---- backward: d_residual is the gradient of the residual stream at the place reached ----

  void final_norm_backward(const Pass& pass) {
    const int last = static_cast<int>(config_.layers) + 1;
    pass.source.acquire(last);
    norm_backward(pass, ln_f_, rows_of(activations_.final, pass), activations_.ln_f_mean,
                  activations_.ln_f_rstd, false);
    pass.source.release(last);
    pass.source.gradients_ready(last);
  }

  void mlp_backward(const Pass& pass, std::int64_t l) {
    const BlockActivations<T>& a = activations_.block(l);
    const auto d_wide = rows_of(activations_.d_wide, pass);
    const Tensor<const T, 2> d_branch =
        branch_gradient(pass, l, Branch::mlp, rows_of(activations_.d_narrow, pass));
    unapply_linear(pass, blocks_[l].mlp_out, d_wide, d_branch, rows_of(a.gelu, pass));
    gelu_backward<T>(d_wide, d_wide, rows_of(a.hidden, pass), pass.stream);
    unapply_linear(pass, blocks_[l].mlp_in, rows_of(activations_.d_narrow, pass), d_wide,
                   rows_of(a.ln_2, pass));
    norm_backward(pass, blocks_[l].ln_2, rows_of(a.middle, pass), a.ln_2_mean, a.ln_2_rstd, true);
  }

  void attention_branch_backward(const Pass& pass, std::int64_t l) {
    const BlockActivations<T>& a = activations_.block(l);
    const auto d_narrow = rows_of(activations_.d_narrow, pass);
    const Tensor<T, 2> d_qkv{activations_.d_wide.data, {pass.rows, 3 * config_.channels}};
    const Tensor<const T, 2> d_branch = branch_gradient(
        pass, l, Branch::attention, {activations_.d_wide.data, {pass.rows, config_.channels}});
    unapply_linear(pass, blocks_[l].attention_out, d_narrow, d_branch, rows_of(a.attention, pass));
    attention_backward(pass, l, d_qkv, d_narrow);
    unapply_linear(pass, blocks_[l].qkv, d_narrow, d_qkv, rows_of(a.ln_1, pass));
    norm_backward(pass, blocks_[l].ln_1, rows_of(a.input, pass), a.ln_1_mean, a.ln_1_rstd, true);
  }

  void unapply_linear(const Pass& pass, const LinearSpecs& specs, Tensor<T, 2> d_inp,
                      Tensor<const T, 2> d_out, Tensor<const T, 2> inp) const {
    linear_backward<T>(
        d_inp, gradient2(pass.source, specs.weight), gradient(pass.source, specs.bias), d_out, inp,
        weight2(pass.source, specs.weight), activations_.scratch, pass.gemm, pass.stream);
  }

  // From d_narrow, the gradient of a LayerNorm's output, to d_residual: written, or, past a branch,
  // added to what the residual stream brings.
  void norm_backward(const Pass& pass, const NormSpecs& specs, Tensor<const T, 2> inp,
                     Tensor<float, 1> mean, Tensor<float, 1> rstd, bool past_branch) const {
    const Tensor<T, 2> d_residual = rows_of(activations_.d_residual, pass);
    layernorm_backward<T>(d_residual, gradient(pass.source, specs.weight),
                          gradient(pass.source, specs.bias), rows_of(activations_.d_narrow, pass),
                          inp, rows_of(mean, pass), rows_of(rstd, pass),
                          weight(pass.source, specs.weight),
                          past_branch ? Tensor<const T, 2>(d_residual) : Tensor<const T, 2>{},
                          activations_.scratch, pass.stream);
  }

  Gpt2Config config_;
  RunShape run_;
  const ParameterSpec& wte_;
  const ParameterSpec& wpe_;
  NormSpecs ln_f_;
  std::vector<BlockSpecs> blocks_;
  Activations<T> activations_;
};

}  // namespace llmc
