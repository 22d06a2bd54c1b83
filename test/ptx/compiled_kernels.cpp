// Runs the launches of a host build by what nvcc compiled (llmc/device/host/compiled_kernels.h).
//
// From the environment:
//   LLMC_PTX         the folder of PTX [build/ptx/90a]
//   LLMC_PTX_SEED    decides what the manual of PTX leaves open [1]
//   LLMC_PTX_RACES   0: races are not checked, which is faster [1]
//   LLMC_PTX_UNDEFINED  0: undefined values are not followed [1]
//   LLMC_PTX_BLOCKS  only so many blocks of a launch run, from the first to the last one. A launch
//                    with more does not run if it differs from an earlier one only in addresses.
//                    Results then mean nothing. Memory starts as zeros, which are valid numbers
//                    and indices [all]
//   LLMC_PTX_COUNTS  a file, to which each kernel's counts are appended at the end: launches,
//                    instructions of warps and of threads, seconds, name
//   LLMC_PTX_DIGESTS  a file, to which each launch appends its kernel, "exact" or "open" (the
//                    manual leaves results open), and a hash of its parameters and tensors before
//                    and after it
//   LLMC_PTX_ONLY    a part of the names of kernels: the host executor runs all others, which helps
//                    to find the kernel that differs
#include "llmc/device/host/compiled_kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "test/ptx/device_memory.h"
#include "test/ptx/forms.h"
#include "test/ptx/grid.h"
#include "test/ptx/library.h"
#include "test/ptx/races.h"

namespace llmc_ptx {

namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

constexpr std::int64_t kAllBlocks = std::numeric_limits<std::int64_t>::max();

std::int64_t max_blocks() {
  static const std::int64_t value =
      std::stoll(environment("LLMC_PTX_BLOCKS", std::to_string(kAllBlocks).c_str()));
  return value;
}

// Memory that no block has written because only some run is not undefined.
bool follows_undefined() {
  return environment("LLMC_PTX_UNDEFINED", "1") != "0" && max_blocks() == kAllBlocks;
}

// The runs of a kernel.
struct Runs {
  std::uint64_t launches = 0;
  Counts counts;
  double seconds = 0;
};

class Executor {
 public:
  static Executor& instance() {
    static Executor executor;
    return executor;
  }

  ~Executor() {
    const std::string path = environment("LLMC_PTX_COUNTS", "");
    if (path.empty()) return;
    std::ofstream file(path, std::ios::app);
    for (const auto& [name, runs] : runs_) {
      file << runs.launches << ' ' << runs.counts.instructions << ' '
           << runs.counts.thread_instructions << ' ' << runs.seconds << ' ' << name << '\n';
    }
  }

  bool run(const llmc::host::CompiledLaunch& launch) {
    const std::string& name = name_of(launch.kernel);
    if (name.find(only_) == std::string::npos) {
      note_writes_of_host(launch);
      return false;
    }
    const Program* const program = library_.find(name);
    llmc::require(program != nullptr, "the kernel " + name + " is in no file of PTX");
    const auto bytes = static_cast<std::int64_t>(launch.arguments.size());
    llmc::require(bytes == program->parameter_bytes,
                  name + " has parameters of " + std::to_string(program->parameter_bytes) +
                      " bytes, and arguments of " + std::to_string(bytes));
    if (launch.grid.x * launch.grid.y * launch.grid.z > max_blocks() && is_repeated(launch)) {
      return true;
    }
    const std::uint64_t before = digests_.is_open() ? digest(launch) : 0;
    const auto start = std::chrono::steady_clock::now();
    EarlierLaunches& earlier = earlier_launches(launch.stream);
    const bool overlaps = launch.overlapped && program->can_overlap;
    const auto races = checks_races_ ? std::make_shared<GlobalRaces>() : nullptr;
    const Counts counts =
        run_grid(*program,
                 {.grid = {launch.grid.x, launch.grid.y, launch.grid.z},
                  .threads = launch.block_threads,
                  .dynamic_shared_bytes = static_cast<std::int64_t>(launch.shared_bytes),
                  .checks_undefined = checks_undefined_,
                  .max_blocks = max_blocks(),
                  .races = races,
                  .earlier = overlaps ? &earlier : nullptr},
                 launch.arguments.data(), seed_);
    if (races != nullptr) earlier.add(name, races, overlaps);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const std::scoped_lock lock(mutex_);
    if (digests_.is_open()) {
      digests_ << name << (is_exact(*program) ? " exact " : " open ") << before << ' '
               << digest(launch) << '\n';
    }
    Runs& runs = runs_[name];
    ++runs.launches;
    runs.counts.instructions += counts.instructions;
    runs.counts.thread_instructions += counts.thread_instructions;
    runs.seconds += time.count();
    return true;
  }

  // The next launch of a stream begins after the end of those before it.
  void end_launches(const void* stream) {
    const std::scoped_lock lock(mutex_);
    earlier_.erase(stream);
  }

 private:
  Executor()
      : library_(environment("LLMC_PTX", "build/ptx/90a")),
        seed_(std::stoull(environment("LLMC_PTX_SEED", "1"))),
        only_(environment("LLMC_PTX_ONLY", "")),
        checks_races_(environment("LLMC_PTX_RACES", "1") != "0"),
        checks_undefined_(follows_undefined()) {
    const std::string path = environment("LLMC_PTX_DIGESTS", "");
    if (!path.empty()) digests_.open(path, std::ios::app);
  }

  // The arguments in words of 8 bytes, each of which may be an address.
  static std::vector<std::uint64_t> words_of(const llmc::host::CompiledLaunch& launch) {
    std::vector<std::uint64_t> words((launch.arguments.size() + 7) / 8);
    if (!words.empty()) std::memcpy(words.data(), launch.arguments.data(), launch.arguments.size());
    return words;
  }

  // A hash of the arguments, of which addresses do not count, and of the tensors that they point
  // to.
  static std::uint64_t digest(const llmc::host::CompiledLaunch& launch) {
    std::uint64_t hash = llmc::mix64(launch.grid.x, launch.grid.y, launch.grid.z);
    const auto add = [&](const void* memory, std::uint64_t bytes) {
      for (std::uint64_t i = 0; i < bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(memory) + i,
                    std::min<std::uint64_t>(8, bytes - i));
        hash = llmc::mix64(hash, word);
      }
    };
    for (const std::uint64_t word : words_of(launch)) {
      const Range tensor = DeviceMemory::instance().find(word);
      if (tensor.end == 0) {
        hash = llmc::mix64(hash, word);
      } else {
        add(reinterpret_cast<const void*>(tensor.begin), tensor.end - tensor.begin);
      }
    }
    return hash;
  }

  // Whether the manual of PTX leaves nothing open in the kernel.
  static bool is_exact(const Program& program) {
    if (program.has_fusable_sums) return false;
    return std::ranges::none_of(program.origins, [](const Origin& origin) {
      const std::string& form = origin.form->name;
      return form.find(".approx.") != std::string::npos ||
             (form.starts_with("mma.") && form.find(".f32.") != std::string::npos);
    });
  }

  // Those of a stream.
  EarlierLaunches& earlier_launches(const void* stream) {
    const std::scoped_lock lock(mutex_);
    return earlier_[stream];
  }

  // The host runs the kernel: what it may write counts as defined.
  static void note_writes_of_host(const llmc::host::CompiledLaunch& launch) {
    for (const std::uint64_t word : words_of(launch)) {
      const Range tensor = DeviceMemory::instance().find(word);
      if (tensor.end == 0) continue;
      DeviceMemory::instance().host_writes(reinterpret_cast<const void*>(tensor.begin),
                                           tensor.end - tensor.begin);
    }
  }

  const std::string& name_of(const void* kernel) {
    const std::scoped_lock lock(mutex_);
    std::string& name = names_[kernel];
    if (!name.empty()) return name;
    Dl_info info{};
    const bool is_known =
        dladdr(kernel, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == kernel;
    return name = is_known ? info.dli_sname : "a kernel that only its file knows";
  }

  // Whether an earlier launch had the same shape and arguments. Of addresses, only the alignment
  // counts.
  bool is_repeated(const llmc::host::CompiledLaunch& launch) {
    std::vector<std::uint64_t> key = words_of(launch);
    for (std::uint64_t& word : key) {
      if (DeviceMemory::instance().find(word).end != 0) word %= 256;
    }
    for (const auto part : {launch.grid.x, launch.grid.y, launch.grid.z,
                            static_cast<std::int64_t>(launch.block_threads),
                            static_cast<std::int64_t>(launch.shared_bytes)})
      key.push_back(static_cast<std::uint64_t>(part));
    key.push_back(reinterpret_cast<std::uintptr_t>(launch.kernel));
    const std::scoped_lock lock(mutex_);
    return !launched_.insert(std::move(key)).second;
  }

  Library library_;
  std::uint64_t seed_;
  std::string only_;
  bool checks_races_, checks_undefined_;
  std::mutex mutex_;
  std::ofstream digests_;
  std::map<const void*, std::string> names_;
  std::map<std::string, Runs> runs_;
  std::map<const void*, EarlierLaunches> earlier_;
  std::set<std::vector<std::uint64_t>> launched_;
};

DeviceMemory& memory() {
  [[maybe_unused]] static const bool once = [] {
    DeviceMemory::instance().track_undefined(follows_undefined());
    return true;
  }();
  return DeviceMemory::instance();
}

}  // namespace

}  // namespace llmc_ptx

namespace llmc::host {

bool run_compiled(const CompiledLaunch& launch) {
  return llmc_ptx::Executor::instance().run(launch);
}

void add_device_memory(void* memory, std::size_t bytes, bool is_pinned) {
  if (llmc_ptx::max_blocks() < llmc_ptx::kAllBlocks) std::memset(memory, 0, bytes);
  llmc_ptx::memory().add(memory, bytes,
                         is_pinned ? llmc_ptx::Owner::host : llmc_ptx::Owner::device);
}

void add_device_tensor(const void* memory, std::size_t bytes) {
  llmc_ptx::memory().add_tensor(memory, bytes);
}

void remove_device_memory(const void* memory) {
  llmc_ptx::memory().remove(memory);
}

void note_end_of_launches(const void* stream) {
  llmc_ptx::Executor::instance().end_launches(stream);
}

void note_host_copy(const void* to, const void* from, std::size_t bytes) {
  llmc_ptx::memory().host_copies(to, from, bytes);
}

void note_host_read(const void* memory, std::size_t bytes) {
  llmc_ptx::memory().host_reads(memory, bytes);
}

void note_host_write(const void* memory, std::size_t bytes) {
  llmc_ptx::memory().host_writes(memory, bytes);
}

}  // namespace llmc::host
