// The order of computation and transfers of offloaded state: under the race checker, a missing
// event is a race; in every build, the copy for the next block comes before the kernels of the
// present one.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "llmc/device/launch_observer.h"
#include "test/memory_cases.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Groups launches by the bytes that were on their way to the device before each of them.
class ArrivalsBeforeLaunches final : public LaunchObserver {
 public:
  explicit ArrivalsBeforeLaunches(const Context& context) : context_(context) {}

  struct Group {
    std::int64_t bytes, launches;
  };

  void on_launch(const void*, int, std::size_t) override {
    const std::int64_t bytes = context_.offload_bytes()[0];
    if (groups.empty() || groups.back().bytes != bytes) groups.push_back({bytes, 0});
    ++groups.back().launches;
  }

  std::vector<Group> groups;

 private:
  const Context& context_;
};

}  // namespace

TEST_SUITE("offload order") {
  TEST_CASE("the weights of the next block are on their way before a kernel of the present one") {
    constexpr std::int64_t kLayers = 5;
    LayoutOptions options{.layers = kLayers};
    RunShape shape = shape_of({}, options);
    shape.offload.parameters = {Place::host, {}};
    ModelRig<float> rig(options.config(), shape);
    Context& context = rig.engine().context();
    const DeviceBatch batch = rig.put(batch_of(0, 0, options));
    const std::int64_t before = context.offload_bytes()[0];
    ArrivalsBeforeLaunches arrivals(context);
    rig.stream().observe(&arrivals);
    rig.runner().forward(batch);
    rig.stream().observe(nullptr);

    const ShardLayout& layout = rig.state().layout();
    const auto bytes_of = [&](std::int64_t block) {
      return layout.block_size(static_cast<std::size_t>(block)) * std::int64_t{sizeof(float)};
    };
    // The embedding, then the blocks; the final norm follows the last block.
    REQUIRE(arrivals.groups.size() == kLayers + 1);
    std::int64_t expected = before + bytes_of(0);
    for (std::int64_t i = 0; i <= kLayers; ++i) {
      CAPTURE(i);
      expected += bytes_of(i + 1);
      CHECK(arrivals.groups[static_cast<std::size_t>(i)].bytes == expected);
      // All kernels of a block are in its group, also those of the last one with the final norm.
      const std::int64_t launches = arrivals.groups[static_cast<std::size_t>(i)].launches;
      const std::int64_t block = arrivals.groups[1].launches;
      CHECK((i == 0 ? launches < block : i == kLayers ? launches > block : launches == block));
    }
  }

  TEST_CASE("transfers to host memory and to a disk are ordered with the passes") {
    for (const MemoryOptions& mode : memory_modes()) {
      if (!mode.offload.any() || mode.offload.optimizer == OffloadPlace()) continue;
      MemoryCase c{
          make_case({.ranks = 2, .stage = 1, .shard_ranks = 2, .micro_batches = 2}, 211, 0),
          Dtype::bf16};
      c.work.options.steps = 2;
      c.work.options.layers = 3;
      c.work.options.memory = mode;
      compare_with_plain(c);
    }
  }
}
