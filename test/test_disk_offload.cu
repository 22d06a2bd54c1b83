// Training with all of its state on a disk: each read and each write fails, is short or is slow, in
// turn, in one process. The functions pread and pwrite below replace those of the C library.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/scratch_file.h"
#include "llmc/comm/thread_ranks.h"
#include "llmc/config/huggingface_shape.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/memory_cases.h"
#include "test/rank_rig.h"

namespace {

enum class DiskFault { none, input_output_error, full, nothing_moved, half, slow };

// The fault of the transfer with number `at`, counted from 1. One test at a time uses it.
struct DiskFaults {
  std::atomic<DiskFault> fault = DiskFault::none;
  std::atomic<long> at = 0, count = 0;

  void set(DiskFault next, long number) {
    fault = next;
    at = number;
    count = 0;
  }
};
DiskFaults faults;

// The function of this name that these replace: of a preloaded library, else of the C library.
template <class Function>
Function* next_function(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Makes the transfer call(size), with the fault that is due.
template <class Call>
ssize_t transfer(std::size_t size, const Call& call) {
  const DiskFault fault = ++faults.count == faults.at ? faults.fault.load() : DiskFault::none;
  switch (fault) {
    case DiskFault::input_output_error:
      errno = EIO;
      return -1;
    case DiskFault::full:
      errno = ENOSPC;
      return -1;
    case DiskFault::nothing_moved:
      return 0;
    case DiskFault::half:
      return call(size > 4096 ? size / 2 / 4096 * 4096 : size);
    case DiskFault::slow:
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      return call(size);
    default:
      return call(size);
  }
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* bytes, std::size_t size, off_t offset) {
  static const auto next = next_function("pread", ::pread);
  return transfer(size, [&](std::size_t n) { return next(fd, bytes, n, offset); });
}
ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  static const auto next = next_function("pwrite", ::pwrite);
  return transfer(size, [&](std::size_t n) { return next(fd, bytes, n, offset); });
}

}  // extern "C"

using namespace llmc;
using namespace llmc_test;

namespace {

// Two steps of a small model, the first of which is saved.
struct DiskRun {
  std::string error;
  std::vector<float> weights;

  explicit DiskRun(const std::filesystem::path& folder, const OffloadPlaces& offload) {
    RunConfig config = run_config({}, 0, 1);
    config.shape.layers = 1;
    run_thread_ranks(1, [&](World& world) {
      // Everything that may use the disk is inside.
      error = complaint([&] { run(world, config, offload, folder); });
    });
  }

 private:
  void run(World& world, const RunConfig& config, const OffloadPlaces& offload,
           const std::filesystem::path& folder) {
    RunShape shape = config.run_shape();
    shape.offload = offload;
    TrainingEngine<float> engine(config.shape, shape);
    engine.allocate();
    engine.state().initialise(5, engine.stream());
    Exchange exchange(world);
    TrainStep step(config, engine, exchange, {random_batch});
    RunPosition position;
    step.read_ahead(position);
    step.run(position);
    save_checkpoint(folder, to_huggingface(config.shape, {}), position, 1, engine.state(),
                    engine.stream());
    step.run(position);
    for (const ParameterSpec& spec : engine.table().specs()) {
      std::vector<float> values(static_cast<std::size_t>(spec.size()));
      engine.state().get_weight(spec, values.data(), engine.stream());
      weights.insert(weights.end(), values.begin(), values.end());
    }
  }
};

// A checkpoint that the run has saved before its failure loads.
void check_checkpoint(const std::filesystem::path& folder) {
  RunConfig config = run_config({}, 0, 1);
  config.shape.layers = 1;
  for (const auto& path : directories_in(folder)) {
    if (is_temporary_name(path.filename().string())) continue;
    ModelRig<float> rig(config.shape, config.run_shape());
    CHECK(load_checkpoint(path, 1, rig.state(), rig.stream()).step == 1);
  }
}

// All kinds in a directory.
OffloadPlaces on_disk(const std::filesystem::path& folder) {
  OffloadPlaces places = offload_to({Place::disk, folder.string()}, true, true, true, true);
  places.chunk = OffloadPlaces().chunk;
  return places;
}

}  // namespace

TEST_SUITE("disk offload") {
  TEST_CASE("each transfer that fails is one error, and a short or slow one changes nothing") {
    if (kCudaTarget || tiny_shapes()) return;
    const TemporaryDirectory folder;
    const auto scratch = folder.path() / "scratch";
    const DiskRun plain(folder.path() / "plain", {});
    REQUIRE(plain.error == "");
    faults.set(DiskFault::none, 0);
    const DiskRun good(folder.path() / "good", on_disk(scratch));
    const long transfers = faults.count;
    REQUIRE(good.error == "");
    CHECK(llmc_test::same_bits(good.weights, plain.weights));
    CHECK(transfers > 20);
    CHECK(transfers <= 200);
    for (const DiskFault fault : {DiskFault::input_output_error, DiskFault::full,
                                  DiskFault::nothing_moved, DiskFault::half, DiskFault::slow}) {
      const bool fails = fault < DiskFault::half;
      for (long number = 1; number <= transfers; number += long_run() ? 1 : 8) {
        CAPTURE(static_cast<int>(fault));
        CAPTURE(number);
        const auto out = folder.path() / "run";
        std::filesystem::remove_all(out);
        faults.set(fault, number);
        const DiskRun run(out, on_disk(scratch));
        if (!fails) {
          CHECK(run.error == "");
          CHECK(llmc_test::same_bits(run.weights, plain.weights));
          continue;
        }
        CHECK(contains(run.error, "the scratch file in " + scratch.string() + " at byte "));
        faults.set(DiskFault::none, 0);
        check_checkpoint(out);
      }
    }
    faults.set(DiskFault::none, 0);
    CHECK(std::filesystem::is_empty(scratch));
  }
}
