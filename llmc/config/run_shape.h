// Sizes and dropout rates with which a model is built and trained, in addition to its own shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/offload_places.h"
#include "llmc/ops/adapter_shape.h"
#include "llmc/pipeline/pipeline.h"

namespace llmc {

// Sizes that a model is built for. They are fixed, so its memory is fixed.
struct RunShape {
  std::int64_t B = 1;         // maximum number of sequences in a micro-batch
  std::int64_t T = 1;         // maximum number of tokens in a sequence; at most the context
  bool training = true;       // false: no buffers for the backward pass
  bool int8_weights = false;  // only for inference with a key-value cache
  Attention attention = Attention::flash;
  // Activations that the backward pass computes again, in the first `recompute_blocks` blocks of
  // each stage; 0: in all blocks.
  Recompute recompute = Recompute::none;
  std::int64_t recompute_blocks = 0;
  OffloadPlaces offload = {};
  // Rows of logits that exist at the same time; 0: all. In bf16, 4096 rows of GPT-2's vocabulary
  // take 393 MiB. More rows make fewer and larger matrix products.
  std::int64_t logits_rows = 4096;
  // ZeRO: ranks of a shard group divide 1: the optimizer state, 2: also the gradients, 3: also the
  // weights.
  int zero_stage = 0;
  // Sequence parallelism: the rows of the residual stream are spread over the tensor ranks.
  bool sequence_parallel = false;
  // The most that a pass may quantize; none: there are no quantized passes, and no buffers.
  QatMode qat = QatMode::none;
  // The stages of the pipeline ranks and their passes of a step.
  Pipeline pipeline = {};
  // Names of the parameters that training does not change (ParameterSpec::name); with_frozen() sets
  // them.
  std::vector<std::string> frozen = {};
  // Adapters of linear layers, which learn; all parameters of the model are then frozen.
  AdapterShape adapters = {};
  // Whether the matrices of the model are INT8 codes; only with adapters, on one tensor and
  // pipeline rank, and not with sharded weights.
  bool base_codes = false;

  std::int64_t rows() const { return B * T; }
  bool uses_sequence_parallelism(std::int64_t tensor_ranks) const {
    return sequence_parallel && tensor_ranks > 1;
  }
  std::int64_t chunk_rows() const;
  // The mode of block `index` of a stage.
  Recompute recompute_of(std::int64_t index) const {
    return recompute_blocks == 0 || index < recompute_blocks ? recompute : Recompute::none;
  }
};

// The matrices that the passes of a model quantize to INT8. None by default.
struct QuantizedPass {
  bool weights = false;      // of the linear layers, and the token embeddings
  bool activations = false;  // the inputs of the linear layers; needs quantized weights
  bool zero_points = false;  // of the activations
};

// Dropout probabilities in training, at the places where GPT-2 has dropout: the sum of the
// embeddings, the attention probabilities, and the output of each branch; and of the inputs of
// adapters.
struct DropoutRates {
  double embedding = 0, attention = 0, residual = 0, adapter = 0;
};

}  // namespace llmc
