// The values of one block that its backward pass reads. Depending on --recompute (Chen et al.,
// 2016), a block keeps them from the forward pass, or they are in buffers that all blocks share and
// are computed again before its backward pass:
//
//                  kept                                          in shared buffers
//   none           everything
//   selective      input, statistics of norms, qkv, attention,   outputs of both norms and of the
//                  log_sum_exp, residual_mid, fc                 activation; probabilities
//   full           input; on tensor ranks a piece of it          everything else
//
// An input of a linear layer that no gradient reads, because the weight is frozen, is always
// shared.
#pragma once

#include <cstdint>

#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/rows.h"
#include "llmc/models/gpt2/block_backward.h"
#include "llmc/nn/linear.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/norm.h"
#include "llmc/nn/self_attention.h"
#include "llmc/nn/tensor_group.h"

namespace llmc {

// `own` are the rows of the residual stream that this rank has; the other tensors have all rows
// (B*T), and the columns of this rank: those of its NH heads of HS channels, and its H hidden
// channels. On one rank, own is B*T and NH HS is C; H is 4C unless the config has another size.
template <class T>
struct BlockActivations : AttentionActivations<T> {
  Tensor<T, 2> input;              // (own, C) the residual stream on entry
  Tensor<T, 2> ln_1;               // (own, C)
  NormStatistics ln_1_statistics;  // (own)
  Tensor<T, 2> residual_mid;       // (own, C) the residual stream after attention
  Tensor<T, 2> ln_2;               // (own, C)
  NormStatistics ln_2_statistics;  // (own)
  Tensor<T, 2> fc;                 // (B*T, H) hidden layer of the MLP, before the activation
  Tensor<T, 2> gelu;               // (B*T, H) after it
  // Of the linear layers with adapters.
  AdapterActivations<T> c_attn_adapter, attention_adapter, c_fc_adapter, mlp_adapter;
  Recompute recompute = Recompute::none;
  // This rank's piece of the input, of TensorGroup::piece_rows(B*T) rows, if only that is kept.
  Tensor<T, 2> input_piece;

  // Returns views of the same memory for a batch of fewer rows. log_sum_exp, probabilities and
  // input_piece stay as they are: their users set the shapes from the batch.
  BlockActivations first(const RankRows& rows) const {
    BlockActivations view = *this;
    for (Tensor<T, 2>* tensor : {&view.input, &view.ln_1, &view.residual_mid, &view.ln_2}) {
      *tensor = first_rows(*tensor, rows.own);
    }
    for (Tensor<T, 2>* tensor : {&view.qkv, &view.attention, &view.fc, &view.gelu}) {
      *tensor = first_rows(*tensor, rows.all);
    }
    for (NormStatistics* norm : {&view.ln_1_statistics, &view.ln_2_statistics}) {
      *norm = {first_rows(norm->mean, rows.own), first_rows(norm->rstd, rows.own)};
    }
    for (AdapterActivations<T>* adapter : {&view.c_attn_adapter, &view.c_fc_adapter}) {
      *adapter = adapter->first(rows.all);
    }
    for (AdapterActivations<T>* adapter : {&view.attention_adapter, &view.mlp_adapter}) {
      *adapter = adapter->first(rows.own);
    }
    return view;
  }

  // Returns these tensors, with those of `shared` in place of the ones without memory.
  BlockActivations completed_with(const BlockActivations& shared) const {
    BlockActivations all = *this;
    const auto complete = [](auto& tensor, const auto& other) {
      if (tensor.data == nullptr) tensor = other;
    };
    complete(all.input, shared.input);
    complete(all.ln_1, shared.ln_1);
    complete(all.ln_1_statistics.mean, shared.ln_1_statistics.mean);
    complete(all.ln_1_statistics.rstd, shared.ln_1_statistics.rstd);
    complete(all.qkv, shared.qkv);
    complete(all.attention, shared.attention);
    complete(all.log_sum_exp, shared.log_sum_exp);
    complete(all.probabilities, shared.probabilities);
    complete(all.residual_mid, shared.residual_mid);
    complete(all.ln_2, shared.ln_2);
    complete(all.ln_2_statistics.mean, shared.ln_2_statistics.mean);
    complete(all.ln_2_statistics.rstd, shared.ln_2_statistics.rstd);
    complete(all.fc, shared.fc);
    complete(all.gelu, shared.gelu);
    complete(all.c_attn_adapter.hidden, shared.c_attn_adapter.hidden);
    complete(all.c_attn_adapter.unscaled, shared.c_attn_adapter.unscaled);
    complete(all.attention_adapter.hidden, shared.attention_adapter.hidden);
    complete(all.c_fc_adapter.hidden, shared.c_fc_adapter.hidden);
    return all;
  }
};

// Reserves the tensors of blocks in segments of the plan. They must not move before its allocate().
template <class T>
class BlockReservation {
 public:
  BlockReservation(const ModelConfig& config, const RunShape& run, const KeptBlocks& kept,
                   const TensorGroup& group, MemoryPlan& plan)
      : run_(run),
        inputs_(kept.inputs()),
        adapters_(kept.adapters()),
        plan_(plan),
        rows_(run.rows()),
        own_(group.rows_of_rank(run.rows()).stored),
        ranks_(group.ranks()),
        piece_rows_(group.piece_rows(run.rows())),
        cuts_input_(ranks_ > 1 && !run.uses_sequence_parallelism(ranks_)),
        channels_(config.channels),
        heads_(config.heads / group.ranks()),
        width_(heads_ * config.head_size()),
        hidden_(config.hidden_size() / group.ranks()) {}

  // The tensors that a block with this mode keeps.
  void kept(BlockActivations<T>& block, Recompute mode) const {
    const char* segment = "activations";
    block.recompute = mode;
    // The last product of a block is not repeated, so its adapter keeps h in every mode.
    if (adapters_.ranks[3] > 0)
      plan_.reserve(segment, block.mlp_adapter.hidden, own_, adapters_.ranks[3]);
    if (mode == Recompute::full) {
      if (cuts_input_) return plan_.reserve(segment, block.input_piece, piece_rows_, channels_);
      return plan_.reserve(segment, block.input, own_, channels_);
    }
    plan_.reserve(segment, block.input, own_, channels_);
    inner(block, segment);
    if (mode == Recompute::none) outputs(block, segment, "attention matrices", inputs_);
  }

  // The tensors that all blocks of a run with this mode share: in blocks that store everything,
  // only inputs that no gradient reads.
  void shared(BlockActivations<T>& block, Recompute mode) const {
    if (mode == Recompute::none) {
      const KeptInputs shared{!inputs_.ln_1, !inputs_.ln_2, !inputs_.gelu};
      return linear_inputs(block, "shared activations", shared);
    }
    const char* segment = "recompute buffers";
    if (mode == Recompute::full) {
      if (cuts_input_) plan_.reserve(segment, block.input, ranks_ * piece_rows_, channels_);
      inner(block, segment);
    }
    outputs(block, segment, segment, {});
  }

 private:
  void statistics(NormStatistics& norm, const char* segment) const {
    plan_.reserve(segment, norm.mean, own_);
    plan_.reserve(segment, norm.rstd, own_);
  }

  void inner(BlockActivations<T>& block, const char* segment) const {
    statistics(block.ln_1_statistics, segment);
    plan_.reserve(segment, block.qkv, rows_, 3 * width_);
    plan_.reserve(segment, block.attention, rows_, width_);
    plan_.reserve(segment, block.log_sum_exp, rows_ * heads_);
    plan_.reserve(segment, block.residual_mid, own_, channels_);
    statistics(block.ln_2_statistics, segment);
    plan_.reserve(segment, block.fc, rows_, hidden_);
    const auto reserve_hidden = [&](AdapterActivations<T>& adapter, std::int64_t rows,
                                    std::int64_t rank) {
      if (rank > 0) plan_.reserve(segment, adapter.hidden, rows, rank);
    };
    reserve_hidden(block.c_attn_adapter, rows_, adapters_.ranks[0]);
    reserve_hidden(block.attention_adapter, own_, adapters_.ranks[1]);
    reserve_hidden(block.c_fc_adapter, rows_, adapters_.ranks[2]);
    if (adapters_.scales_qkv)
      plan_.reserve(segment, block.c_attn_adapter.unscaled, rows_, 3 * width_);
  }

  void linear_inputs(BlockActivations<T>& block, const char* segment,
                     const KeptInputs& inputs) const {
    if (inputs.ln_1) plan_.reserve(segment, block.ln_1, own_, channels_);
    if (inputs.ln_2) plan_.reserve(segment, block.ln_2, own_, channels_);
    if (inputs.gelu) plan_.reserve(segment, block.gelu, rows_, hidden_);
  }

  void outputs(BlockActivations<T>& block, const char* segment, const char* matrices,
               const KeptInputs& inputs) const {
    linear_inputs(block, segment, inputs);
    if (run_.attention == Attention::standard) {
      plan_.reserve(matrices, block.probabilities, rows_ * heads_ * run_.T);
    }
  }

  const RunShape& run_;
  KeptInputs inputs_;
  AdapterSizes adapters_;
  MemoryPlan& plan_;
  std::int64_t rows_, own_, ranks_, piece_rows_;
  bool cuts_input_;  // tensor ranks have the whole residual stream
  std::int64_t channels_, heads_, width_, hidden_;
};

}  // namespace llmc
