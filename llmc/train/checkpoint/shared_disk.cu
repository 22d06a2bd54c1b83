#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/io/checkpoint/pending_directory.h"
#include "llmc/train/checkpoint/shared_disk.h"

namespace llmc {

namespace {

// A file system of a network may show a new file of another machine only after a while.
constexpr std::chrono::seconds kPatience{5};

// Throws unless the file that the rank on `writer` wrote appears here.
void require_visible(const std::filesystem::path& path, const std::string& writer) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!path_exists(path)) {
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    fail("machine " + machine_text() + " does not see " + path.string() + ", which machine " +
             writer + " has written",
         "give an --out on a disk that all ranks share; or --save sync, with which rank 0 writes "
         "all files");
  }
}

}  // namespace

void require_shared_disk(const std::filesystem::path& directory, Exchange& exchange) {
  if (exchange.ranks() == 1) return;
  const std::vector<std::string> machines = exchange.gather_texts(machine_text());
  std::optional<PendingDirectory> pending;  // removed at the end, or by the next save
  exchange.together([&] {
    if (exchange.first()) pending.emplace(directory / "probe");
  });
  const std::filesystem::path probes = exchange.broadcast(pending ? pending->path().string() : "");
  const auto probe_of = [&](std::size_t rank) { return probes / ("rank-" + std::to_string(rank)); };
  exchange.together([&] {
    if (exchange.first()) write_file(probe_of(0), "probe");
  });
  exchange.together([&] {
    if (exchange.first()) return;
    require_visible(probe_of(0), machines[0]);
    write_file(probe_of(static_cast<std::size_t>(exchange.rank())), "probe");
  });
  exchange.together([&] {
    for (std::size_t rank = 1; exchange.first() && rank < machines.size(); ++rank) {
      require_visible(probe_of(rank), machines[rank]);
    }
  });
}

}  // namespace llmc
