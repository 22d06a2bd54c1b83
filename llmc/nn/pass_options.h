// The options of a training pass: dropout and its numbers, and the loss.
#pragma once

#include <cstdint>

#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/ops/dropout.h"

namespace llmc {

// Dropout depends on the seed, the step and the number of each sample in the whole run.
struct PassOptions {
  DropoutRates dropout{};
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // index in the run of the batch's first sequence
  bool has_backward = true;       // false: the forward pass of an evaluation
};

// The loss that a backward pass differentiates. Gradients are those of scale × the sum of the
// losses, times *factor unless it is null. The pass adds scale × the sum of the losses to sum (1).
struct LossOptions {
  float scale = 1;
  Tensor<float, 1> sum;           // fp32, in device memory
  const float* factor = nullptr;  // in device memory
};

enum class Branch { attention, mlp };

// Dropout sites (ops/dropout.h): 0 is the embedding. In layer l, 3l + 1 is the attention
// probabilities, 3l + 2 the output of the attention branch, 3l + 3 the output of the MLP branch.
inline Dropout embedding_dropout(const PassOptions& o) {
  return make_dropout(o.dropout.embedding, o.seed, o.step, 0, o.first_sample);
}
inline Dropout attention_dropout(const PassOptions& o, std::int64_t l) {
  return make_dropout(o.dropout.attention, o.seed, o.step, 3 * l + 1, o.first_sample);
}
inline Dropout branch_dropout(const PassOptions& o, std::int64_t l, Branch branch) {
  const std::int64_t site = 3 * l + (branch == Branch::attention ? 2 : 3);
  return make_dropout(o.dropout.residual, o.seed, o.step, site, o.first_sample);
}
// The dropout of adapter number `site` of a model.
inline Dropout adapter_dropout(const PassOptions& o, std::int64_t site) {
  constexpr std::int64_t kFirstSite = 1 << 20;
  return make_dropout(o.dropout.adapter, o.seed, o.step, kFirstSite + site, o.first_sample);
}

}  // namespace llmc
