// The default batch of a run on a GPU: a micro-batch that fills the memory, and steps whose number
// of tokens does not depend on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "llmc/config/fill_settings.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/model/context.h"
#include "llmc/train/run/fitting.h"
#include "llmc/train/run/resolve.h"

namespace llmc {

inline constexpr std::int64_t kMaxDefaultBatch = 64;  // sequences
// Memory that a default micro-batch leaves free: the CUDA context, the workspace of cuBLASLt, and
// what other programs on the GPU use.
inline constexpr std::int64_t kMemoryReserve = std::int64_t{2} << 30;

// The largest power of two up to 64 for which bytes_of(B) is at most `total_memory` minus the
// reserve; at least 1. `tokens` are those of B = 1 on all data ranks. If the tokens of a step are
// given, B * tokens divides them if any B does.
inline std::int64_t default_batch_size(
    std::int64_t total_memory, std::int64_t tokens, std::optional<std::int64_t> step_tokens,
    const std::function<std::int64_t(std::int64_t B)>& bytes_of) {
  for (std::int64_t B = kMaxDefaultBatch; B > 1; B /= 2) {
    if (step_tokens && *step_tokens % (B * tokens) != 0) continue;
    if (bytes_of(B) <= total_memory - kMemoryReserve) return B;
  }
  return 1;
}

// The memory of the pipeline rank that needs the most.
inline std::int64_t largest_memory(Dtype dtype, const Gpt2Config& model, const RunShape& shape,
                                   const Mesh& mesh) {
  std::int64_t largest = 0;
  for (int rank = 0; rank < mesh.pipeline_ranks; ++rank) {
    Context context({}, Ranks(mesh, mesh.rank_at(rank, 0, 0, 0)));
    largest = std::max(largest, planned_bytes(dtype, model, shape, context));
  }
  return largest;
}

// Sets the defaults of --batch-size and of the tokens of a step for a GPU with `total_memory`
// bytes per rank. A resumed run has its own.
inline void set_gpu_batch(RunFacts& facts, const Request& request, std::int64_t total_memory) {
  facts.default_step_tokens = kGpuStepTokens;
  if (request.batch.batch_size || facts.preset.batch.batch_size) return;
  facts.default_batch_size = 1;
  const RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  const Gpt2Config model = model_shape(config, facts);
  const Pipeline pipeline = pipeline_of(config, model.layers);
  facts.default_batch_size = default_batch_size(
      total_memory, config.batch.seq_len * config.data_ranks(), request.batch.total_batch_tokens,
      [&](std::int64_t B) {
        RunShape shape = config.run_shape();
        shape.B = B;
        shape.pipeline = pipeline;
        return largest_memory(config.precision.dtype, model, shape, config.mesh());
      });
}

}  // namespace llmc
