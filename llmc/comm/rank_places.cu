#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/threads.h"
#include "llmc/comm/rank_places.h"
#include "llmc/device/workers.h"

namespace llmc {

std::vector<int> ranks_with_equal(const std::string& text, Exchange& exchange) {
  const auto own = static_cast<std::int64_t>(checksum_of(text));
  const std::vector<std::int64_t> all = exchange.all_gather({own});
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == own) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void divide_processors(Exchange& exchange) {
  if (exchange.ranks() == 1) return;
  cpu_set_t processors{};
  sched_getaffinity(0, sizeof processors, &processors);
  const std::string_view mask(reinterpret_cast<const char*>(&processors), sizeof processors);
  const std::vector<int> sharing =
      ranks_with_equal(machine_text() + " " + std::string(mask), exchange);
  const std::int64_t threads =
      std::max<std::int64_t>(1, available_processors() / std::ssize(sharing));
  constexpr int kKeepValue = 0;
  ::setenv("LLMC_HOST_THREADS", std::to_string(threads).c_str(), kKeepValue);
  require(workers().threads() <= cpu_threads(),
          "the processors were divided after the threads of the host had started");
}

}  // namespace llmc
