#include <cstddef>
#include <iterator>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/comm/rank_places.h"
#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/memory_hint.h"

namespace llmc {

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
         fit_hint({.dtype = runner.state().dtype(),
                   .config = runner.config(),
                   .shape = runner.shape(),
                   .mesh = runner.context().ranks.mesh(),
                   .free_bytes = device.free_memory / num_sharing}));
  }
  runner.allocate();
  return plans;
}

}  // namespace llmc
