#include <algorithm>
#include <functional>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/parallel/save_plan.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/plan/snapshot_memory.h"

namespace llmc {

std::vector<std::int64_t> snapshot_bytes(const RunConfig& config) {
  const Mesh mesh = config.mesh();
  if (config.output.out.empty() || config.output.save != SaveMode::async || !config.training()) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(mesh.ranks));
  }
  const RunShape shape = config.run_shape();
  const MeshPlace place{mesh.tensor_rank(0), mesh.tensor_ranks, mesh.pipeline_rank(0)};
  const ParameterTable table = gpt2_parameters(config.shape, place, shape);
  const ShardLayout layout(table, shape.zero_stage, mesh.shard_ranks, mesh.shard_rank(0));
  const bool has_adapter = std::ranges::any_of(table.specs(), &ParameterSpec::is_adapter);
  SavePlan plan =
      plan_save(table, layout, mesh, kWriterShare, [&](const auto&) { return !has_adapter; });
  for (const ParameterSpec& spec : table.specs()) {
    if (has_adapter && spec.trainable) plan.bytes[0] += 4 * spec.size();
  }
  // These are written from the disk that has them, one tensor at a time.
  if (shape.offload.optimizer.place == Place::disk) {
    std::ranges::transform(plan.bytes, plan.moment_bytes, plan.bytes.begin(), std::minus<>());
  }
  return plan.bytes;
}

}  // namespace llmc
