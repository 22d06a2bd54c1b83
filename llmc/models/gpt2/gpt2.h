// GPT-2 (Radford et al., 2019) as a loop over its layers, forward and backward.
//
//   x = wte[token] + wpe[position]
//   for each block:  x += attention(ln_1(x));  x += mlp(ln_2(x))
//   logits = ln_f(x) · wteᵀ, or · lm_head.weightᵀ if the head is not tied to the embeddings
//
// A call runs the whole model or a stage of it: a range of blocks, with or without the embedding
// and the head. The caller's `Activations` hold what the backward pass needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "llmc/models/gpt2/block.h"
#include "llmc/models/gpt2/block_backward.h"
#include "llmc/nn/embedding.h"
#include "llmc/nn/lm_head.h"
#include "llmc/nn/stage.h"
#include "llmc/ops/residual_add.h"

namespace llmc {

template <class T>
class Gpt2 {
 public:
  // The part of the model that the rank at table.place() computes. Reserves workspace in the plan;
  // usable after plan.allocate(). `table` and `source` must outlive the model.
  Gpt2(const ModelConfig& config, const ParameterTable& table, ParameterSource& source,
       const RunShape& run, const TensorGroup& group, MemoryPlan& plan)
      : config_(config),
        run_(validate(run, config)),
        stages_(stages_of(run.pipeline, table.place().pipeline_rank, config.layers)),
        source_(source),
        embedding_(table, source),
        ln_f_(table, "ln_f", config.norm_epsilon, source),
        head_(table, source),
        head_block_(table.head().block),
        first_learning_block_(table.first_learning_block()),
        kept_(table, run),
        work_(config, run, group, has_head() ? head_.logit_columns() : 0, has_backward(), plan),
        scratch_rows_(group.rows_of_rank(run.rows()).stored) {
    for (std::int64_t l = 0; l < config.layers; ++l) {
      blocks_.emplace_back(config, l, table, source, run);
    }
    if (run.qat == QatMode::none) return;
    if (has_embedding()) embedding_.reserve_quantization(plan);
    for (const Stage& stage : stages_) {
      for (std::int64_t l = stage.first; l < stage.end; ++l) blocks_[l].reserve_quantization(plan);
    }
    if (has_head()) head_.reserve_quantization(plan);
  }
  Gpt2(const Gpt2&) = delete;
  Gpt2& operator=(const Gpt2&) = delete;

  const ModelConfig& config() const { return config_; }
  Stage whole() const { return {.end = config_.layers}; }
  // The stages that the rank computes, in the order of the model; the whole model on one rank.
  const std::vector<Stage>& stages() const { return stages_; }
  bool has_embedding() const { return stages_.front().embedding; }
  bool has_head() const { return stages_.back().head; }
  // Whether the rank has backward passes: not if nothing in its stages, or below them, learns.
  bool has_backward() const {
    return std::ranges::any_of(stages_,
                               [&](const Stage& stage) { return kept_.has_backward(stage); });
  }
  const KeptBlocks& kept() const { return kept_; }

  // The layers, for passes that compose them in another way (infer/model_pass.h).
  const Embedding<T>& embedding() const { return embedding_; }
  const std::vector<Block<T>>& blocks() const { return blocks_; }
  const Norm<T>& final_norm() const { return ln_f_; }
  const LmHead<T>& head() const { return head_; }

  // Number of floats in Context::scratch that a backward pass needs. It suffices for smaller
  // batches.
  std::int64_t scratch_size() const {
    return has_backward() ? blocks_[0].scratch_size(run_.B, run_.T, scratch_rows_) : 0;
  }

  // ---- the whole model ----

  // Writes the final, normalised hidden states to saved.final_hidden(). `attend` may replace the
  // blocks' attention (block.h).
  template <class Attend = OwnAttention>
  void forward(Activations<T>& saved, const DeviceBatch& batch, Context& context,
               const PassOptions& options = {}, const Attend& attend = {}) {
    forward(whole(), saved, batch, context, options, attend);
  }

  // Computes the losses (B*T) of the last forward pass, one per token, for evaluation.
  Tensor<const float, 1> losses(Activations<T>& saved, const DeviceBatch& batch, Context& context) {
    const RankRows rows = context.tensor.rows_of_rank(batch.rows());
    source_.acquire(head_block_);
    head_.losses(saved.losses(rows), work_.head(), saved.final_hidden(rows),
                 first_rows(batch.targets, rows.all), context);
    source_.release(head_block_);
    return saved.losses(rows);
  }

  // Computes the logits of single rows of the last forward pass, which had `num_rows` rows, and
  // calls use(i, logits) for the i-th of them. Numbers from V on are padding. The logits of a row
  // replace those of the row before.
  template <class Use>
  void logits_of_rows(Activations<T>& saved, std::int64_t num_rows,
                      std::span<const std::int64_t> chosen, Context& context, const Use& use) {
    const RankRows rows = context.tensor.rows_of_rank(num_rows);
    source_.acquire(head_block_);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Tensor<const T, 2> hidden =
          context.tensor.row<T>(saved.final_hidden(rows), chosen[i], rows.all, context.stream);
      use(i, head_.logits_of_row(work_.head(), hidden, context));
    }
    source_.release(head_block_);
  }

  // Computes the logits (count, columns) of the rows [first, first + count) of the last forward
  // pass, which had `num_rows` rows. `count`: at most run.chunk_rows(). Only for a model on one
  // rank. Numbers from V on in a row are padding.
  Tensor<const T, 2> logits_of_rows(Activations<T>& saved, std::int64_t num_rows,
                                    std::int64_t first, std::int64_t count, Context& context) {
    const RankRows rows = context.tensor.rows_of_rank(num_rows);
    source_.acquire(head_block_);
    const Tensor<const T, 2> hidden = row_range(saved.final_hidden(rows), first, count);
    const Tensor<const T, 2> logits = head_.logits_of_rows(work_.head(), hidden, context);
    source_.release(head_block_);
    return logits;
  }

  // Runs forward and backward of one micro-batch. Adds to the parameter gradients of the source.
  void forward_backward(Activations<T>& saved, const DeviceBatch& batch, const LossOptions& loss,
                        Context& context, const PassOptions& options = {}) {
    forward(whole(), saved, batch, context, options);
    backward(whole(), saved, batch, loss, context, options);
  }

  // ---- a stage of the model ----

  // (own, C) The caller of a stage without embedding writes the residual stream to stage_input()
  // before forward(). A stage without head leaves it in stage_output().
  Tensor<T, 2> stage_input(Activations<T>& saved, const RankRows& rows) const {
    saved.enter(0);
    return saved.block(0, rows).input;
  }
  Tensor<T, 2> stage_output(Activations<T>& saved, const RankRows& rows) const {
    return saved.residual_out(rows);
  }
  // (own, C) The gradient of the residual stream. The caller of a stage without head writes it
  // before backward(). A stage without embedding leaves the gradient of its input there.
  Tensor<T, 2> residual_gradient(const RankRows& rows) const { return work_.d_residual(rows); }

  template <class Attend = OwnAttention>
  void forward(const Stage& stage, Activations<T>& saved, const DeviceBatch& batch,
               Context& context, const PassOptions& options = {}, const Attend& attend = {}) {
    require(0 <= stage.first && stage.first < stage.end && stage.end <= config_.layers,
            "the stage has no blocks, or blocks that the model does not have");
    require(batch.T <= run_.T && batch.rows() <= run_.rows(),
            "the batch is larger than the model was built for");
    const ProfileScope scope("forward", context.stream);
    const Pass pass(batch, options, context);
    const RankRows& rows = pass.rows;
    context.outputs.begin_pass(false);
    source_.forward_begins();
    Residual<T> x{stage_input(saved, rows), {}};
    if (stage.embedding) embed(stage_input(saved, rows), stage, pass);
    for (std::int64_t l = stage.first; l < stage.end; ++l) {
      const bool is_last = l + 1 == stage.end;
      source_.acquire(layer_block(l), !is_last     ? layer_block(l + 1)
                                      : stage.head ? final_block()
                                                   : kNoBlock);
      const std::int64_t place = kept_.place(stage, l);
      saved.enter(place);
      x = blocks_[l].forward(saved.block(place, rows), x, work_, attend, pass);
      if (options.has_backward && kept_.has_backward(l)) saved.leave(place);
      source_.release(layer_block(l));
    }
    const Tensor<T, 2> out = saved.residual_out(rows);
    if (!stage.head) {
      residual_add<T>(out, x.sum, x.branch, context.stream);
      return context.outputs.rows("residual add", stage.end - 1, out, context.stream);
    }
    source_.acquire(final_block());
    ln_f_.forward_sum(out, saved.final_hidden(rows), saved.final_statistics(rows), x.sum, x.branch,
                      context);
    source_.release(final_block());
  }

  // Backward pass of the stage's last forward pass with `saved`, down to the lowest block that
  // learns. Only a stage with head uses `loss`.
  void backward(const Stage& stage, Activations<T>& saved, const DeviceBatch& batch,
                const LossOptions& loss, Context& context, const PassOptions& options = {}) {
    const Pass pass(batch, options, context);
    const RankRows& rows = pass.rows;
    context.outputs.begin_pass(true);
    source_.backward_begins();
    if (stage.head) head_backward(stage, saved, loss, pass);
    const ProfileScope scope("backward", context.stream);
    const std::int64_t first = kept_.first_backward(stage);
    if (stage.head && first_learning_block_ <= final_block()) {
      final_norm_backward(saved, first < stage.end ? layer_block(stage.end - 1) : kNoBlock, pass);
    }
    for (std::int64_t l = stage.end - 1; l >= first; --l) {
      source_.acquire(layer_block(l), l > first ? layer_block(l - 1) : kNoBlock);
      saved.bring(l - first, l - first - 1);
      const BlockActivations<T> a = saved.block(l - first, rows);
      if (a.recompute != Recompute::none) recompute(l, a, pass);
      blocks_[l].backward(a, work_, pass);
      source_.release(layer_block(l));
      source_.gradients_ready(layer_block(l));
    }
    if (stage.embedding && first_learning_block_ == kEmbeddingBlock) embedding_backward(pass);
  }

 private:
  static const RunShape& validate(const RunShape& run, const ModelConfig& config) {
    if (run.T <= config.context) return run;
    fail("sequences of " + std::to_string(run.T) + " tokens do not fit the model's context of " +
             std::to_string(config.context),
         "use a " + quantity("sequence length") + " of at most the " + quantity("context"));
  }

  int final_block() const { return layer_block(config_.layers); }

  void embed(Tensor<T, 2> out, const Stage& stage, const Pass& pass) {
    source_.acquire(kEmbeddingBlock, layer_block(stage.first));
    embedding_.forward(out, pass.batch, pass.context);
    pass.drop(out, embedding_dropout(pass.options));
    source_.release(kEmbeddingBlock);
  }

  void recompute(std::int64_t l, const BlockActivations<T>& a, const Pass& pass) {
    const ProfileScope scope("recompute", pass.context.stream);
    pass.context.timed(Phase::recompute, [&] { blocks_[l].recompute(a, work_, pass); });
  }

  void embedding_backward(const Pass& pass) {
    const Tensor<T, 2> d_residual = work_.d_residual(pass.rows);
    source_.acquire_gradients(kEmbeddingBlock);
    pass.drop(d_residual, embedding_dropout(pass.options));
    embedding_.backward(d_residual, pass.batch, pass.context);
    source_.gradients_ready(kEmbeddingBlock);
  }

  // Computes the losses, adds their sum, and writes the gradient of the final hidden states to
  // d_btc.
  void head_backward(const Stage& stage, Activations<T>& saved, const LossOptions& loss,
                     const Pass& pass) {
    const RankRows& rows = pass.rows;
    const ProfileScope scope("head", pass.context.stream);
    source_.acquire(head_block_, final_block());
    head_.backward(work_.d_btc(rows), saved.losses(rows), work_.head(), saved.final_hidden(rows),
                   pass.batch.targets, loss, pass.context);
    source_.release(head_block_);
    // A tied wte gets another gradient, from the embedding, if the stage has that.
    const bool is_complete = head_block_ != kEmbeddingBlock || !stage.embedding;
    if (is_complete) source_.gradients_ready(head_block_);
  }

  void final_norm_backward(Activations<T>& saved, int next, const Pass& pass) {
    const RankRows& rows = pass.rows;
    source_.acquire(final_block(), next);
    ln_f_.backward(work_.d_residual(rows), work_.d_btc(rows), saved.residual_out(rows),
                   saved.final_statistics(rows), {}, pass.context);
    source_.release(final_block());
    source_.gradients_ready(final_block());
  }

  ModelConfig config_;
  RunShape run_;
  std::vector<Stage> stages_;
  ParameterSource& source_;
  Embedding<T> embedding_;
  std::vector<Block<T>> blocks_;
  Norm<T> ln_f_;
  LmHead<T> head_;
  int head_block_;  // of the weight of the logits
  int first_learning_block_;
  KeptBlocks kept_;
  Workspace<T> work_;
  std::int64_t scratch_rows_;  // rows of the residual stream for which scratch suffices
};

}  // namespace llmc
