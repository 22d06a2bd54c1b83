// The order of computation and transfers of offloaded state: under the race checker, a missing
// event is a race; in every build, the copy for the next block comes before the kernels of the
// present one.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "llmc/device/launch_observer.h"
#include "test/memory_cases.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Groups launches by the bytes that were on their way to the device, or to host memory, before each
// of them.
class BytesBeforeLaunches final : public LaunchObserver {
 public:
  enum Direction { to_device, to_host };
  BytesBeforeLaunches(const Context& context, Direction direction)
      : context_(context), direction_(direction) {}

  struct Group {
    std::int64_t bytes, launches;
  };

  void on_launch(const void*, int, std::size_t) override {
    const std::int64_t bytes = context_.offload_bytes()[direction_];
    if (groups.empty() || groups.back().bytes != bytes) groups.push_back({bytes, 0});
    ++groups.back().launches;
  }

  std::vector<Group> groups;

 private:
  const Context& context_;
  Direction direction_;
};

// A model of which the CPU updates the weights.
template <class T>
struct CpuRig : ModelRig<T> {
  explicit CpuRig(const LayoutOptions& options) : ModelRig<T>(options.config(), shape(options)) {
    initialise(this->state(), this->stream());
  }
  static RunShape shape(const LayoutOptions& options) {
    RunShape shape = shape_of({}, options);
    shape.offload = update_on_cpu({});
    return shape;
  }
  Context& context() { return this->engine().context(); }
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
    BytesBeforeLaunches arrivals(context, BytesBeforeLaunches::to_device);
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

  TEST_CASE("gradients leave for the CPU before a kernel of the next lower block runs") {
    constexpr std::int64_t kLayers = 4;
    const LayoutOptions options{.layers = kLayers};
    CpuRig<float> rig(options);
    BytesBeforeLaunches departures(rig.context(), BytesBeforeLaunches::to_host);
    rig.stream().observe(&departures);
    rig.gradients_of({batch_of(0, 0, options)});
    rig.stream().observe(nullptr);

    const ShardLayout& layout = rig.state().layout();
    // Those of the head and the final norm, of each block, and of the embedding, after which the
    // gradients of the embeddings leave.
    REQUIRE(departures.groups.size() == kLayers + 2);
    std::int64_t expected = 0;
    for (std::int64_t i = 0; i <= kLayers + 1; ++i) {
      CAPTURE(i);
      CHECK(departures.groups[static_cast<std::size_t>(i)].bytes == expected);
      expected += layout.block_size(static_cast<std::size_t>(kLayers + 1 - i)) *
                  std::int64_t{sizeof(float)};
    }
    CHECK(rig.context().offload_bytes()[1] == expected);
    rig.gradients_of({batch_of(0, 0, options)});  // overwrites what has left, without an update
  }

  TEST_CASE("a skipped update by the CPU changes nothing and moves nothing") {
    const LayoutOptions options{.layers = 2};
    CpuRig<fp16> rig(options);
    const auto update = [&](double loss_scale) {
      rig.set_loss_scale(loss_scale);
      rig.gradients_of({batch_of(0, 0, options)});
      const auto moved = rig.context().offload_bytes();
      rig.state().apply_gradients(optimizer_of(options), kLearningRate, rig.stream());
      auto bytes = rig.context().offload_bytes();
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] -= moved[i];
      return bytes;
    };
    const auto before = rig.weights();
    CHECK(update(0x1p127) == std::array<std::int64_t, 4>{});
    CHECK(rig.state().optimizer_state(rig.stream()).skipped_updates == 1);
    CHECK(same_bits(rig.weights(), before));
    const std::int64_t weights = rig.state().layout().shard_size() * std::int64_t{sizeof(fp16)};
    CHECK(update(1024) == std::array<std::int64_t, 4>{weights, 0, 0, 0});
    CHECK(!same_bits(rig.weights(), before));
  }

  TEST_CASE("transfers to host memory and to a disk are ordered with the passes") {
    const auto check = [](const Layout& layout, const MemoryOptions& mode) {
      MemoryCase c{make_case(layout, 211, 0), Dtype::bf16};
      c.work.options.layers = 3;
      c.work.options.memory = mode;
      c.work.options.steps = c.has_other_rounding() ? 1 : 2;
      compare_with_plain(c);
    };
    for (const MemoryOptions& mode : memory_modes()) {
      if (!mode.offload.any() || mode.offload.optimizer == OffloadPlace()) continue;
      check({.ranks = 2, .stage = 1, .shard_ranks = 2, .micro_batches = 2}, mode);
      if (mode.offload.optimizer_on_cpu) check({.ranks = 2, .pipeline_ranks = 2}, mode);
    }
    const OffloadPlace disk{Place::disk, scratch_directory()};
    check({.ranks = 2, .stage = 3, .shard_ranks = 2, .micro_batches = 2},
          {.offload = offload_to(disk, false, true, true, false)});
  }
}
