// Limits of memory: cgroups of both versions in made-up trees, and `ulimit -v`.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "llmc/device/device.h"
#include "llmc/device/host/properties.h"
#include "llmc/device/memory_limits.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc::host;

// A tree with proc/self/cgroup and cgroup directories.
class Tree {
 public:
  explicit Tree(const std::string& membership) { write("proc/self/cgroup", membership); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void version_2(const std::string& directory, const std::string& limit, const std::string& usage,
                 const std::string& cached = "0") const {
    const std::string at = "sys/fs/cgroup" + directory;
    write(at + "/memory.max", limit + "\n");
    write(at + "/memory.current", usage + "\n");
    write(at + "/memory.stat", "anon 5\ninactive_file " + cached + "\n");
  }
  std::int64_t free() const { return free_memory_of_cgroups(folder_.path()); }

 private:
  llmc_test::TemporaryDirectory folder_;
};

__global__ void barrier_kernel() {
  block_barrier();
}

TEST_SUITE("memory_limits") {
  TEST_CASE("the limit of a cgroup bounds the free memory") {
    const Tree tree("0::/job/step\n");
    CHECK(tree.free() == kUnlimited);
    tree.version_2("/job/step", "1000", "300");
    CHECK(tree.free() == 700);
  }

  TEST_CASE("file caches count as free") {
    const Tree tree("0::/job\n");
    tree.version_2("/job", "1000", "900", "250");
    CHECK(tree.free() == 350);
  }

  TEST_CASE("the tightest cgroup of a hierarchy counts") {
    const Tree tree("0::/user/job/step\n");
    tree.version_2("/user", "5000", "4600");
    tree.version_2("/user/job", "max", "300");
    tree.version_2("/user/job/step", "1000", "300");
    CHECK(tree.free() == 400);
  }

  TEST_CASE("a container whose cgroup is the root of the mount is limited") {
    const Tree tree("0::/docker/0123\n");
    tree.version_2("", "800", "300");
    CHECK(tree.free() == 500);
  }

  TEST_CASE("a cgroup above its limit has no free memory") {
    const Tree tree("0::/\n");
    tree.version_2("", "800", "900");
    CHECK(tree.free() == 0);
  }

  TEST_CASE("cgroups of version 1 are limited by the memory controller") {
    const Tree tree("5:cpu,cpuacct:/a\n4:memory:/job\n0::/\n");
    tree.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000\n");
    tree.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900\n");
    tree.write("sys/fs/cgroup/memory/job/memory.stat",
               "inactive_file 7\ntotal_inactive_file 100\n");
    CHECK(tree.free() == 1200);
  }

  TEST_CASE("the free memory of the machine is a part of all of it") {
    CHECK(memory().total > 0);
    CHECK(memory().free > 0);
    CHECK(memory().free < memory().total);
  }

  TEST_CASE("ulimit -v bounds the free memory of the device") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    CHECK(free_address_space() == kUnlimited);
    const std::int64_t used = *integer_in("/proc/self/statm") * sysconf(_SC_PAGESIZE);
    const std::int64_t allowed = used + kAddressSpaceReserve + (std::int64_t{100} << 20);
    rlimit lower = before;
    lower.rlim_cur = static_cast<rlim_t>(allowed);
    REQUIRE(setrlimit(RLIMIT_AS, &lower) == 0);
    const std::int64_t free = free_address_space(), device = device_properties().free_memory;
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(free <= std::int64_t{100} << 20);
    CHECK(free > std::int64_t{50} << 20);
    CHECK(device <= free);
  }

  TEST_CASE("a launch without memory for the stacks of its threads throws an error") {
    if (kAddressSanitizer || kThreadSanitizer) {
      return llmc_test::skip("sanitizers need address space of their own");
    }
    Stream stream;
    launch(barrier_kernel, {1, 1, 1}, 32, 0, stream);  // starts the threads of the executor
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit lower = before;
    const std::int64_t used = *integer_in("/proc/self/statm") * sysconf(_SC_PAGESIZE);
    lower.rlim_cur = static_cast<rlim_t>(used + (std::int64_t{8} << 20));
    REQUIRE(setrlimit(RLIMIT_AS, &lower) == 0);
    const std::string error = llmc_test::complaint([&] {
      launch(barrier_kernel, {1, 1, 1}, 1024, 0, stream);
    });
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(llmc_test::contains(error, "no memory for the stack of a thread, in block (0, 0, 0)"));
    launch(barrier_kernel, {1, 1, 1}, 1024, 0, stream);  // the executor still works
  }
}

}  // namespace
