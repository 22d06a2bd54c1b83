#include <cstddef>
#include <iterator>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/comm/rank_places.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/plan/memory_hint.h"

namespace llmc {

std::int64_t smaller_batch_that_fits(RunShape shape, std::int64_t free_bytes,
                                     const BytesOfShape& bytes_of) {
  std::int64_t max_batch = 0, upper_bound = shape.B;  // bisection: B may be as large as 65535
  while (upper_bound - max_batch > 1) {
    shape.B = max_batch + (upper_bound - max_batch) / 2;
    (bytes_of(shape) <= free_bytes ? max_batch : upper_bound) = shape.B;
  }
  return max_batch;
}

std::string fit_hint(Dtype dtype, const ModelConfig& config, const RunShape& shape,
                     Context& context, std::int64_t free_bytes) {
  return fit_hint(shape, context.ranks.mesh(), free_bytes, [&](const RunShape& candidate) {
    return planned_bytes(dtype, config, candidate, context);
  });
}

std::string fit_hint(const RunShape& shape, const Mesh& mesh, std::int64_t free_bytes,
                     const BytesOfShape& bytes_of) {
  RunShape candidate = shape;
  const auto fits = [&] { return bytes_of(candidate) <= free_bytes; };
  const int shards = mesh.shard_ranks;
  for (candidate.zero_stage = shape.zero_stage + 1; shards > 1 && candidate.zero_stage <= 3;
       ++candidate.zero_stage) {
    if (fits()) return "use --zero " + std::to_string(candidate.zero_stage) + ", which fits";
  }
  candidate.zero_stage = shards > 1 ? 3 : shape.zero_stage;
  const std::string zero = candidate.zero_stage > shape.zero_stage
                               ? "--zero " + std::to_string(candidate.zero_stage) + " and "
                               : "";
  candidate.sequence_parallel = mesh.tensor_ranks > 1;
  if (candidate.sequence_parallel && !shape.sequence_parallel && fits()) {
    return "use " + zero + "--sequence-parallel, which fits";
  }
  candidate.sequence_parallel = shape.sequence_parallel;
  candidate.logits_rows = RunShape{}.logits_rows;
  if (candidate.chunk_rows() < shape.chunk_rows() && fits()) {
    return "use " + zero + "--logits-rows " + std::to_string(candidate.logits_rows) +
           ", which fits";
  }
  candidate.logits_rows = shape.logits_rows;
  const std::int64_t max_batch = smaller_batch_that_fits(candidate, free_bytes, bytes_of);
  if (max_batch > 0) {
    return "use " + zero + "--batch-size " + std::to_string(max_batch) +
           ", which fits; --grad-accum keeps the global batch large";
  }
  candidate.B = 1;
  const std::int64_t full_length = candidate.T;
  for (; candidate.T > 1; candidate.T = candidate.T / 2) {
    if (fits()) break;
  }
  if (candidate.T < full_length && fits()) {
    return "use " + zero + "--batch-size 1 --seq-len " + std::to_string(candidate.T) +
           ", which fits";
  }
  return "use a smaller model or a device with more memory: not even one short sequence fits";
}

std::vector<std::int64_t> allocate(TrainingRunner& runner, Exchange& exchange) {
  const DeviceProperties device = device_properties();
  const MemoryPlan& memory = runner.memory();
  // No rank allocates before all have read how much is free.
  const std::vector<int> sharing = ranks_on_device(exchange);
  std::vector<std::int64_t> plans =
      exchange.all_gather({MemoryPlan::device_bytes(memory.segments())});
  std::int64_t total = 0;
  for (const int rank : sharing) total += plans[static_cast<std::size_t>(rank)];
  const auto num_sharing = std::ssize(sharing);
  const std::string ranks =
      num_sharing == 1 ? "" : std::to_string(num_sharing) + " ranks on this device, each with ";
  Notice::print("device: " + std::string(device.name) + ", " + megabytes(device.free_memory) +
                " free of " + megabytes(device.total_memory) + "\nmemory: " + ranks +
                memory.report());
  if (total > device.free_memory) {
    fail("the run needs " + megabytes(total) + " of device memory, " +
             megabytes(device.free_memory) + " are free (" + ranks + memory.report() + ")",
         fit_hint(runner.state().dtype(), runner.config(), runner.shape(), runner.context(),
                  device.free_memory / num_sharing));
  }
  runner.allocate();
  return plans;
}

}  // namespace llmc
