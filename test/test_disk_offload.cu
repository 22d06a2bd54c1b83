// Training with all of its state on a disk: each read and each write fails, is short or is slow, in
// turn, in one process. The functions pread and pwrite below replace those of the C library.
#include <doctest/doctest.h>
#include <sys/syscall.h>
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
  return transfer(size, [&](std::size_t n) { return syscall(SYS_pread64, fd, bytes, n, offset); });
}
ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  return transfer(size, [&](std::size_t n) { return syscall(SYS_pwrite64, fd, bytes, n, offset); });
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

TEST_SUITE("scratch file") {
  TEST_CASE("bytes survive transfers in any order, and the directory stays empty") {
    const TemporaryDirectory folder;
    constexpr std::int64_t kPage = ScratchFile::kAlignment, kPages = 9;
    for (const auto removal : {ScratchFile::Removal::automatic, ScratchFile::Removal::at_end}) {
      {
        const ScratchFile file(folder.path(), kPages * kPage - 5, removal);
        const bool has_name = removal == ScratchFile::Removal::at_end;
        CHECK(std::filesystem::is_empty(folder.path()) == !has_name);
        std::vector<std::byte> memory(static_cast<std::size_t>((kPages + 1) * kPage));
        std::byte* const page =
            memory.data() + kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage;
        for (const std::int64_t i : {5, 0, 8, 3}) {
          std::fill_n(page, kPage, static_cast<std::byte>(i + 1));
          file.write(i * kPage, {page, static_cast<std::size_t>(kPage)});
        }
        file.read(0, {page, static_cast<std::size_t>(kPages * kPage)});
        for (std::int64_t i = 0; i < kPages; ++i) {
          const bool is_written = i == 5 || i == 0 || i == 8 || i == 3;
          CHECK(page[i * kPage] == static_cast<std::byte>(is_written ? i + 1 : 0));
          CHECK(page[(i + 1) * kPage - 1] == page[i * kPage]);
        }
        CHECK_THROWS_WITH_AS(file.read(7, {page, 4096}), doctest::Contains("not aligned"), Error);
      }
      CHECK(std::filesystem::is_empty(folder.path()));
    }
  }

  TEST_CASE("files without a live owner are removed, and no others") {
    const TemporaryDirectory folder;
    const ScratchFile live(folder.path(), 4096, ScratchFile::Removal::at_end);
    write_file(folder.path() / ".llmc-scratch-abandoned", "left by a killed process");
    write_file(folder.path() / "notes.txt", "of a user");
    const ScratchFile other(folder.path(), 4096, ScratchFile::Removal::at_end);
    CHECK(!std::filesystem::exists(folder.path() / ".llmc-scratch-abandoned"));
    CHECK(std::filesystem::exists(folder.path() / "notes.txt"));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);
  }

  TEST_CASE("a directory without room is an error at the start, with the room that is free") {
    const TemporaryDirectory folder;
    const std::string error = complaint([&] { ScratchFile(folder.path(), std::int64_t{1} << 60); });
    CHECK(contains(error, "cannot reserve 1152921.50 TB in " + folder.path().string()));
    CHECK(contains(error, "are free"));
    CHECK(std::filesystem::is_empty(folder.path()));
    write_file(folder.path() / "file", "");
    CHECK(contains(complaint([&] { ScratchFile(folder.path() / "file", 4096); }), "file"));
  }
}
