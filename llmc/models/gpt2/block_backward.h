// The part of the backward pass that a run computes, and what that reads: everything if all
// parameters learn, less if some are frozen. Pure functions of the parameter table, for the model,
// its memory and its plan.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "llmc/config/run_shape.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/nn/stage.h"

namespace llmc {

// The gradients that the backward pass of a block computes. It goes from the output of the block to
// its input, so each line implies those above it.
struct BlockBackward {
  bool hidden = true;        // of the output of the activation, and of c_fc
  bool mlp_input = true;     // of the output of ln_2
  bool residual_mid = true;  // of the residual stream between attention and MLP
  bool attention = true;     // of the output of attention, and of c_attn
  bool norm_output = true;   // of the output of ln_1
  bool input = true;         // of the residual stream before the block: something below learns

  bool operator==(const BlockBackward&) const = default;
};

// The gradients that a layer computes which is not below the lowest one that learns.
BlockBackward block_backward(const ParameterTable& table, std::int64_t layer);

// The inputs of linear layers that blocks keep for the backward pass: those that the gradient of a
// weight reads, in any block. Quantized passes read all of them, and without training one block
// keeps all for itself.
struct KeptInputs {
  bool ln_1 = true;  // of c_attn
  bool ln_2 = true;  // of c_fc
  bool gelu = true;  // of mlp.c_proj
};
KeptInputs kept_inputs(const ParameterTable& table, const RunShape& run);

// The sizes of what the adapters of a block keep (nn/linear.h).
struct AdapterSizes {
  // The largest R, with padding, by layer in the order of kLinearLayers; 0: the layer has no LoRA.
  std::array<std::int64_t, 4> ranks{};
  bool scales_qkv = false;  // IA3 of c_attn
};
AdapterSizes adapter_sizes(const ParameterTable& table);

// Which layers have a backward pass, and where each keeps its activations. Those that have one use
// places of their own; those below use the place of the lowest one, one after the other.
class KeptBlocks {
 public:
  KeptBlocks(const ParameterTable& table, const RunShape& run)
      : training_(run.training),
        first_(table.first_learning_block() - 1),
        inputs_(kept_inputs(table, run)),
        adapters_(adapter_sizes(table)) {}

  const KeptInputs& inputs() const { return inputs_; }
  const AdapterSizes& adapters() const { return adapters_; }

  // The lowest layer of a stage with a backward pass; stage.end if no layer of it has one.
  std::int64_t first_backward(const Stage& stage) const {
    return training_ ? std::clamp(first_, stage.first, stage.end) : stage.end;
  }
  bool has_backward(std::int64_t layer) const { return training_ && layer >= first_; }
  // Whether a stage has a backward pass: of layers, or of the head.
  bool has_backward(const Stage& stage) const {
    return training_ && (stage.head || first_backward(stage) < stage.end);
  }

  // The number of places of a stage, and the place of one of its layers.
  std::int64_t places(const Stage& stage) const {
    return std::max<std::int64_t>(1, stage.end - first_backward(stage));
  }
  std::int64_t place(const Stage& stage, std::int64_t layer) const {
    return std::max<std::int64_t>(0, layer - first_backward(stage));
  }

 private:
  bool training_;
  std::int64_t first_;  // -1: the embeddings learn
  KeptInputs inputs_;
  AdapterSizes adapters_;
};

}  // namespace llmc
