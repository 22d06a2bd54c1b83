// Memory of the host that this process may still allocate: limits of the machine, of `ulimit -v`
// and of cgroups (containers, SLURM jobs, systemd units).
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace llmc::host {

inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// The address space that a run needs in addition to its memory plan, held back under `ulimit -v`:
// stacks and heaps of threads, fibers, code and buffers of the matrix library. They are mapped
// after the plan.
inline constexpr std::int64_t kAddressSpaceReserve = std::int64_t{768} << 20;

// Returns the first integer of a file, or nothing if it has none (cgroups write "max").
inline std::optional<std::int64_t> integer_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// Returns the integer after `key` in a file with lines of the form "key value" or "key value unit".
inline std::optional<std::int64_t> integer_of_key(const std::filesystem::path& file,
                                                  std::string_view key) {
  std::ifstream in(file);
  for (std::string line, name; std::getline(in, line);) {
    std::istringstream words(line);
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// File names of one version of cgroups.
struct CgroupFiles {
  const char *limit, *usage, *reclaimable;
};

// Bytes that the cgroup of `directory` may still allocate. Cached files that the kernel can drop
// count as free.
inline std::int64_t free_of_cgroup(const std::filesystem::path& directory,
                                   const CgroupFiles& files) {
  const auto limit = integer_in(directory / files.limit);
  const auto usage = integer_in(directory / files.usage);
  if (!limit || !usage) return kUnlimited;
  const auto reclaimable = integer_of_key(directory / "memory.stat", files.reclaimable);
  return std::max<std::int64_t>(0, *limit - *usage + reclaimable.value_or(0));
}

// The smallest result of free_of_cgroup() over the cgroup `path` below `mount` and all cgroups that
// contain it. A container may see its own cgroup as the root of `mount`.
inline std::int64_t free_of_cgroups(const std::filesystem::path& mount,
                                    const std::filesystem::path& path, const CgroupFiles& files) {
  std::int64_t free = free_of_cgroup(mount, files);
  std::filesystem::path directory = mount;
  for (const auto& part : path.relative_path()) {
    directory /= part;
    free = std::min(free, free_of_cgroup(directory, files));
  }
  return free;
}

// Bytes that the cgroups of this process leave it; kUnlimited if they set no limit. `root` contains
// proc/ and sys/.
inline std::int64_t free_memory_of_cgroups(const std::filesystem::path& root = "/") {
  std::int64_t free = kUnlimited;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::filesystem::path path = line.substr(second + 1);
    if (controllers == ",,") {  // version 2
      free = std::min(free, free_of_cgroups(root / "sys/fs/cgroup", path,
                                            {"memory.max", "memory.current", "inactive_file"}));
    } else if (controllers.find(",memory,") != std::string::npos) {
      free = std::min(free, free_of_cgroups(root / "sys/fs/cgroup/memory", path,
                                            {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file"}));
    }
  }
  return free;
}

// Bytes of address space that `ulimit -v` leaves a run; kUnlimited if there is no limit.
inline std::int64_t free_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::int64_t used = integer_in("/proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  const auto allowed =
      static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kUnlimited)));
  return std::max<std::int64_t>(0, allowed - used - kAddressSpaceReserve);
}

// The memory of the machine, and what this process may still allocate of it, in bytes.
struct Memory {
  std::int64_t total = 0, free = 0;
};
inline Memory memory() {
  const std::filesystem::path file = "/proc/meminfo";
  const auto bytes = [&](const char* key) { return 1024 * integer_of_key(file, key).value_or(0); };
  return {bytes("MemTotal:"),
          std::min({bytes("MemAvailable:"), free_memory_of_cgroups(), free_address_space()})};
}

}  // namespace llmc::host
