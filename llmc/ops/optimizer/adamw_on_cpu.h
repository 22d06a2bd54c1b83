// AdamW on the processors of the host, for optimizer state that is in host memory (ZeRO-Offload).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/device/worker_pool.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/adamw_update.h"
#include "llmc/ops/optimizer/optimizer_options.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/ops/optimizer/stochastic_rounding.h"

namespace llmc {

// A range of parameters in host memory.
template <class T>
struct AdamWPart {
  AdamWArrays<T> arrays;
  bool use_weight_decay;
  std::optional<StochasticRounding> rounding = {};  // empty: to nearest
};

// The updates of adamw() of all parts, with the same arithmetic: on the host target the results
// have the same bits. `state` is that after begin_adamw; nothing changes if its `finite` is 0. The
// results do not depend on the number of the pool's threads.
template <class T>
void adamw_on_cpu(const std::vector<AdamWPart<T>>& parts, const OptimizerOptions& options,
                  double learning_rate, const OptimizerState& state, WorkerPool& pool);

}  // namespace llmc
