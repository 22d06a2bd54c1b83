#include <algorithm>

#include "llmc/comm/ranks.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/model_rules.h"
#include "llmc/config/resolve.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/models/trainable_set.h"
#include "llmc/nn/context.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/pipeline/pipeline.h"
#include "llmc/plan/default_batch.h"

namespace llmc {

namespace {

constexpr std::int64_t kMaxDefaultBatch = 64;  // sequences

}  // namespace

std::int64_t default_batch_size(std::int64_t total_memory, std::int64_t tokens,
                                std::optional<std::int64_t> step_tokens,
                                const std::function<std::int64_t(std::int64_t B)>& bytes_of) {
  for (std::int64_t B = kMaxDefaultBatch; B > 1; B /= 2) {
    if (step_tokens && *step_tokens % (B * tokens) != 0) continue;
    if (bytes_of(B) <= total_memory - kMemoryReserve) return B;
  }
  return 1;
}

std::int64_t largest_memory(Dtype dtype, const ModelConfig& model, const RunShape& shape,
                            const Mesh& mesh, bool is_host_memory) {
  std::int64_t largest = 0;
  for (int rank = 0; rank < mesh.pipeline_ranks; ++rank) {
    Context context({}, Ranks(mesh, mesh.rank_at(rank, 0, 0, 0)));
    largest = std::max(
        largest,
        MemoryPlan::device_bytes(planned_segments(dtype, model, shape, context), is_host_memory));
  }
  return largest;
}

void set_gpu_batch(RunFacts& facts, const Request& request, std::int64_t total_memory) {
  facts.default_step_tokens = kGpuStepTokens;
  if (request.batch.batch_size || facts.preset.batch.batch_size) return;
  facts.default_batch_size = 1;
  RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  config.shape = model_shape(config, facts);
  config.pipeline = pipeline_of(config, config.shape.layers);
  choose_trainable(config, config.finetune.adapter);
  facts.default_batch_size = default_batch_size(
      total_memory, config.batch.seq_len * config.data_ranks(), request.batch.total_batch_tokens,
      [&](std::int64_t B) {
        RunShape shape = config.run_shape();
        shape.B = B;
        return largest_memory(config.precision.dtype, config.shape, shape, config.mesh(), false);
      });
}

}  // namespace llmc
