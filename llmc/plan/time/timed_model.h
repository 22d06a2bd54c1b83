// A model and the layout of its ranks, as far as predicted times depend on them.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/config/choices.h"

namespace llmc {

// The parameters that learn, as shares. By default all do.
struct LearningPart {
  double all = 1;                // of the model's parameters
  double blocks = 1;             // of those of blocks from first_layer on
  double adapters = 0;           // parameters of adapters per parameter of blocks
  bool has_embedding = true;     // whether the embedding of the tokens learns, or the head's matrix
  std::int64_t first_layer = 0;  // the backward pass ends here
};

// As much of a GPT as times depend on.
struct TimedModel {
  std::int64_t layers = 12, channels = 768, heads = 12, T = 1024;
  std::int64_t vocabulary = 50304;  // with padding
  std::int64_t hidden = 3072;       // of the MLP
  bool tied_head = true;
  LearningPart learning = {};

  double block_parameters() const;
  double embedding_parameters() const;  // of the tokens
  double parameters() const;
};

// How ranks divide a step. `chunks` is v of interleaved 1F1B.
struct Layout {
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  int zero = 0, shard_ranks = 1;
  std::int64_t micro_batch = 1;    // B: sequences
  std::int64_t micro_batches = 1;  // of a data rank and step
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  bool offloads_optimizer = false;  // its state is in host memory

  int ranks() const { return tensor * pipeline * data; }
  std::int64_t batch() const { return micro_batch * micro_batches * data; }
  // "tp 8, pp 2, v 3, dp 4, B 2 x 16"
  std::string text() const;
};

// FLOP of a step as Megatron counts it: 96 B T L C^2 (1 + T / 6C + V / 16LC) with full
// recomputation, 72 B T L C^2 (1 + T / 6C + V / 12LC) without.
double step_flops(const TimedModel& model, std::int64_t batch, bool recomputes);

}  // namespace llmc
