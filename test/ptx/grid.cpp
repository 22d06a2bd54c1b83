#include "test/ptx/grid.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "llmc/device/math.h"
#include "test/ptx/device_memory.h"
#include "test/ptx/forms.h"
#include "test/ptx/races.h"

namespace llmc_ptx {

namespace {

// Numbers below `count`, in an order that the seed decides; ascending with seed 0.
std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::uint64_t purpose) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (seed == 0) return order;
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[llmc::mix64(seed, purpose, i) % i]);
  return order;
}

// The tensors to which the parameters of each entry of Program::roots point.
std::vector<std::vector<Range>> tensors_of(const Program& program, const std::byte* parameters) {
  std::vector<std::vector<Range>> tensors;
  for (const std::vector<std::int64_t>& offsets : program.roots) {
    std::vector<Range>& entry = tensors.emplace_back();
    for (const std::int64_t offset : offsets) {
      std::uint64_t address;
      std::memcpy(&address, parameters + offset, sizeof address);
      const Range range = DeviceMemory::instance().find(address);
      if (range.end != 0) entry.push_back(range);
    }
  }
  return tensors;
}

class BlockRunner {
 public:
  BlockRunner(const Program& program, const LaunchShape& shape, const std::byte* parameters,
              std::uint64_t seed)
      : shared_(aligned_bytes(program.shared_bytes + shape.dynamic_shared_bytes + 64)),
        num_warps_(llmc::ceil_div(shape.threads, kLanes)),
        registers_(aligned_bytes(2 * program.register_bytes * num_warps_ + 64)),
        tensors_(tensors_of(program, parameters)) {
    static std::atomic<std::uint64_t> launches = 0;
    block_ = {.program = &program,
              .seed = seed,
              .index = {},
              .grid = shape.grid,
              .threads = shape.threads,
              .parameters = parameters,
              .shared = shared_.get(),
              .shared_bytes = program.shared_bytes + shape.dynamic_shared_bytes,
              .launch = ++launches,
              .tensors = &tensors_,
              .earlier = shape.earlier};
    if (shape.checks_undefined) {
      shared_undefined_ = aligned_bytes(block_.shared_bytes + 64);
      block_.shared_undefined = shared_undefined_.get();
    }
  }

  // Later blocks check races, in global memory with the blocks that `global` knows.
  void check_races(GlobalRaces& global) {
    shared_races_.emplace(block_.shared_bytes, num_warps_);
    block_.shared_races = &*shared_races_;
    block_.global_races = &global;
  }

  Counts run(std::int64_t number) {
    if (shared_races_) {
      shared_races_->start_block();
      block_.global_races->start_block(number, num_warps_);
    }
    const Dim3& grid = block_.grid;
    block_.index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    std::memset(block_.shared, 0xA1, static_cast<std::size_t>(block_.shared_bytes));
    if (block_.shared_undefined != nullptr)
      std::memset(block_.shared_undefined, 0xFF, static_cast<std::size_t>(block_.shared_bytes));
    warps_.clear();
    for (int w = 0; w < num_warps_; ++w) {
      warps_.emplace_back(block_, w, registers_.get() + 2 * w * block_.program->register_bytes);
    }
    const std::vector<std::int64_t> order =
        shuffled(num_warps_, block_.seed, static_cast<std::uint64_t>(number));
    while (true) {
      for (const std::int64_t w : order) {
        Warp& warp = warps_[static_cast<std::size_t>(w)];
        if (warp.state() == Warp::State::running) warp.run();
      }
      if (!pass_barrier()) break;
    }
    if (block_.earlier != nullptr && std::ranges::none_of(warps_, &Warp::has_waited))
      warps_[0].error("no thread of the block waited for the launches before");
    Counts counts;
    for (const Warp& warp : warps_) {
      counts.instructions += warp.num_instructions();
      counts.thread_instructions += warp.num_thread_instructions();
    }
    return counts;
  }

 private:
  // Lets the warps continue that wait at a barrier; false if none does. Warps that have ended do
  // not count.
  bool pass_barrier() {
    const Warp* first = nullptr;
    bool any = false, reduces = false;
    for (Warp& warp : warps_) {
      if (warp.state() != Warp::State::at_barrier) continue;
      const Instruction& barrier = warp.barrier();
      if (first == nullptr) {
        first = &warp;
        reduces = warp.reduces();
      } else if (barrier.immediate != first->barrier().immediate || reduces != warp.reduces()) {
        warp.error("a barrier, while warp " + std::to_string(first->index()) +
                   " waits at another one, at " + block_.program->place_of(first->place()) + ",");
      }
      if (!reduces) continue;
      const std::uint32_t bits = warp.predicate(barrier.operands[1]);
      any = any || ((barrier.negates_source ? ~bits : bits) & warp.live()) != 0;
    }
    if (first == nullptr) return false;
    const bool has_waited = std::ranges::any_of(warps_, &Warp::has_waited);
    if (shared_races_) {
      shared_races_->block_barrier();
      block_.global_races->block_barrier();
    }
    for (Warp& warp : warps_) {
      if (warp.state() != Warp::State::at_barrier) continue;
      if (reduces) warp.set_reduction(any);
      if (has_waited) warp.set_waited();
      warp.pass_barrier();
    }
    return true;
  }

  Block block_;
  AlignedBytes shared_, shared_undefined_;
  int num_warps_;
  AlignedBytes registers_;
  std::vector<std::vector<Range>> tensors_;
  std::vector<Warp> warps_;
  std::optional<SharedRaces> shared_races_;
};

}  // namespace

Counts run_grid(const Program& program, const LaunchShape& shape, const std::byte* parameters,
                std::uint64_t seed) {
  BlockRunner runner(program, shape, parameters, seed);
  if (shape.races != nullptr) runner.check_races(*shape.races);
  Counts all;
  const std::int64_t num_blocks = shape.grid.x * shape.grid.y * shape.grid.z;
  const std::int64_t num_runs = std::min(num_blocks, shape.max_blocks);
  for (const std::int64_t run : shuffled(num_runs, seed, 0)) {
    const Counts counts =
        runner.run(run * (num_blocks - 1) / std::max<std::int64_t>(num_runs - 1, 1));
    all.instructions += counts.instructions;
    all.thread_instructions += counts.thread_instructions;
  }
  return all;
}

}  // namespace llmc_ptx
