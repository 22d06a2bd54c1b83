#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/device/dtype.h"
#include "llmc/plan/offload_traffic.h"
#include "llmc/plan/search/counted_bytes.h"
#include "llmc/plan/step_traffic.h"

namespace llmc {

namespace {

double as_bytes(const GroupTraffic& traffic) {
  return static_cast<double>(traffic.all());
}

// Both directions; a file is not predicted.
double host_bytes(const OffloadBytes& bytes, const OffloadPlace& place) {
  return place.place == Place::host ? static_cast<double>(bytes.to_device + bytes.from_device) : 0;
}

// Adds the stages of a pipeline rank.
void add_stages(SentBytes& sent, const RunConfig& config, const RunShape& run, int rank,
                std::int64_t size) {
  const auto tensor_ranks = static_cast<int>(config.ranks.tp);
  const std::vector<Stage> stages = stages_of(run.pipeline, rank, config.shape.layers);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const TensorTraffic traffic(config.shape, run, stages[i], run.rows(), tensor_ranks, size);
    const std::size_t stage =
        i * static_cast<std::size_t>(run.pipeline.shape.ranks) + static_cast<std::size_t>(rank);
    sent.forward[stage] = as_bytes(traffic.forward());
    sent.backward[stage] = as_bytes(traffic.recompute() + traffic.backward());
    sent.ranks[static_cast<std::size_t>(rank)].tensor += as_bytes(traffic.scales());
  }
}

// The rows of the residual stream that a rank sends to the next stage.
std::int64_t message_rows(const RunShape& run, std::int64_t tensor_ranks) {
  return run.uses_sequence_parallelism(static_cast<int>(tensor_ranks))
             ? ceil_div(run.rows(), tensor_ranks)
             : run.rows();
}

}  // namespace

SentBytes counted_bytes(const RunConfig& config) {
  const RunShape run = config.run_shape();
  const Mesh mesh = config.mesh();
  const std::int64_t size = element_bytes(config.precision.dtype);
  const auto stages = static_cast<std::size_t>(run.pipeline.shape.stages());
  SentBytes sent;
  sent.forward.resize(stages);
  sent.backward.resize(stages);
  sent.message =
      static_cast<double>(size * message_rows(run, mesh.tensor_ranks) * config.shape.channels);
  for (int rank = 0; rank < mesh.pipeline_ranks; ++rank) {
    const StepTraffic step = step_traffic(config.shape, run, mesh, config.batch.grad_accum, size,
                                          mesh.rank_at(rank, 0, 0, 0));
    const OffloadTraffic moved =
        offload_traffic(config.precision.dtype, config.shape, run, mesh, config.batch.grad_accum,
                        mesh.rank_at(rank, 0, 0, 0));
    sent.ranks.push_back({.gradients = as_bytes(step.gradients),
                          .weights = as_bytes(step.weights),
                          .scalars = as_bytes(step.scalars),
                          .tensor = as_bytes(step.copied_gradients + step.tensor_scalars),
                          .pipeline = as_bytes(step.shared_embedding + step.pipeline_scalars),
                          .host_update = host_bytes(moved.optimizer, run.offload.optimizer) +
                                         host_bytes(moved.gradients, run.offload.gradients),
                          .host_passes = host_bytes(moved.parameters, run.offload.parameters) +
                                         host_bytes(moved.activations, run.offload.activations)});
    if (mesh.tensor_ranks > 1) add_stages(sent, config, run, rank, size);
  }
  return sent;
}

}  // namespace llmc
