#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/comm/rank_places.h"
#include "llmc/device/device.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/search/choose_mesh.h"
#include "llmc/train/run/mesh_of_run.h"

namespace llmc {

namespace {

constexpr bool kDeviceIsCpu = !kCudaTarget;

// The machine of scripts/machines for this device.
std::string machine_of_device() {
  if (kDeviceIsCpu) return "cpu";
  const std::string device = device_properties().name;
  for (const auto& [part, machine] :
       {std::pair("H200", "h200"), std::pair("H100", "h100"), std::pair("A100", "a100")}) {
    if (device.find(part) != device.npos) return machine;
  }
  fail("--mesh auto: no machine of scripts/machines has the device " + device,
       "measure one with --measure-machine FILE.json, and give --machine FILE.json");
}

// The ranks of this run, or those that --ranks plans for.
MeshRoom room_of(const Request& request, Exchange& exchange) {
  MeshRoom room{.machine = request.ranks.machine.value_or("")};
  const DeviceProperties device = device_properties();
  const std::int64_t sharing = std::ssize(ranks_on_device(exchange));
  const std::int64_t own =
      kCudaTarget ? device.total_memory / sharing - kMemoryReserve : device.free_memory / sharing;
  const std::int64_t available = std::ranges::min(exchange.all_gather({own}));
  const std::int64_t node = std::ranges::max(exchange.all_gather({exchange.local_ranks()}));
  if (!request.ranks.ranks) {
    room.ranks_per_node = static_cast<double>(node);
    if (!request.ranks.gpu_memory) room.rank_bytes = available;
  }
  return room;
}

// For an exchange of numbers.
std::vector<std::int64_t> numbers_of(const Layout& layout) {
  return {layout.tensor,
          layout.pipeline,
          layout.chunks,
          layout.data,
          layout.zero,
          layout.shard_ranks,
          layout.micro_batch,
          layout.micro_batches,
          static_cast<std::int64_t>(layout.recompute),
          layout.sequence_parallel ? 1 : 0,
          layout.offloads_optimizer ? 1 : 0};
}

Layout layout_of(const std::vector<std::int64_t>& numbers) {
  const auto small = [&](std::size_t i) { return static_cast<int>(numbers[i]); };
  return {.tensor = small(0),
          .pipeline = small(1),
          .chunks = small(2),
          .data = small(3),
          .zero = small(4),
          .shard_ranks = small(5),
          .micro_batch = numbers[6],
          .micro_batches = numbers[7],
          .recompute = static_cast<Recompute>(numbers[8]),
          .sequence_parallel = numbers[9] == 1,
          .offloads_optimizer = numbers[10] == 1};
}

}  // namespace

Request with_mesh_of_run(const Request& request, const RunFacts& facts, Exchange& exchange) {
  if (!chooses_mesh(request, facts)) {
    const bool has_use = request.ranks.plan.value_or(false) || request.ranks.dump_schedule;
    if (!request.ranks.machine || has_use) return request;
    fail_usage("--machine needs --mesh auto, which the checkpoint does not record");
  }
  MeshRoom room = room_of(request, exchange);
  ChosenMesh chosen;
  exchange.together([&] {
    if (!exchange.first()) return;
    if (room.machine.empty()) room.machine = machine_of_device();
    chosen = choose_mesh(request, facts, room);
    Notice::print(chosen.text);
  });
  std::vector<std::int64_t> numbers = numbers_of(chosen.layout);
  const std::vector<std::int64_t> all = exchange.all_gather(numbers);
  numbers.assign(all.begin(), all.begin() + std::ssize(numbers));
  return with_mesh(request, facts, layout_of(numbers));
}

}  // namespace llmc
