#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/rank_places.h"
#include "llmc/device/device.h"
#include "llmc/device/memory_limits.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/memory_hint.h"

namespace llmc {

namespace {

// On a CPU, the memory of the device is the host's.
constexpr bool kHasOneMemory = !kCudaTarget;

// The sum of the numbers of these ranks, of a number per rank.
std::int64_t sum_over(const std::vector<int>& ranks, const std::vector<std::int64_t>& all) {
  std::int64_t sum = 0;
  for (const int rank : ranks) sum += all[static_cast<std::size_t>(rank)];
  return sum;
}

// Host memory next to a GPU.
void check_host_memory(const TrainingRunner& runner, Exchange& exchange) {
  const std::vector<int> sharing = ranks_with_equal(machine_text(), exchange);
  const std::vector<std::int64_t> plans = exchange.all_gather({runner.memory().total(Place::host)});
  require_host_memory(sum_over(sharing, plans), host::memory().free, std::ssize(sharing),
                      runner.shape().zero_stage);
}

}  // namespace

void require_host_memory(std::int64_t needed, std::int64_t free, std::int64_t ranks,
                         int zero_stage) {
  if (needed <= free) return;
  std::string hint = "use --offload KIND=DIR for a kind of state, which moves to a disk";
  if (ranks > 1 && zero_stage == 0) {
    hint += ", or --zero 1, with which ranks divide the optimizer's state: each has all of it";
  }
  fail("offloaded state needs " + megabytes(needed) + " of host memory, " + megabytes(free) +
           " are free" +
           (ranks > 1 ? " (" + std::to_string(ranks) + " ranks on this machine)" : ""),
       hint);
}

std::vector<std::int64_t> allocate(TrainingRunner& runner, std::int64_t micro_batches,
                                   Exchange& exchange) {
  const DeviceProperties device = device_properties();
  const MemoryPlan& memory = runner.memory();
  // No rank allocates before all have read how much is free.
  const std::vector<int> sharing = ranks_on_device(exchange);
  const std::vector<std::int64_t> plans =
      exchange.all_gather({MemoryPlan::device_bytes(memory.segments())});
  const std::int64_t total = sum_over(sharing, plans);
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
                   .free_bytes = device.free_memory / num_sharing,
                   .micro_batches = micro_batches}));
  }
  if (!kHasOneMemory) check_host_memory(runner, exchange);
  runner.allocate();
  return plans;
}

}  // namespace llmc
