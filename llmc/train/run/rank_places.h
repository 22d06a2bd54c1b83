// Resources that ranks on the same machine share: a device, processors.
#pragma once

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/threads.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/exchange.h"
#include "llmc/device/properties.h"

namespace llmc {

// The ranks whose text equals that of this rank, in ascending order. All ranks call this together.
inline std::vector<int> ranks_with_equal(const std::string& text, Exchange& exchange) {
  const auto own = static_cast<std::int64_t>(checksum_of(text));
  const std::vector<std::int64_t> all = exchange.all_gather({own});
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == own) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// The ranks on the same device as this one. On the host that is the machine.
inline std::vector<int> ranks_on_device(Exchange& exchange) {
  return ranks_with_equal(machine_text() + " " + device_bus_id(), exchange);
}

// Divides the processors of a machine among the ranks that may run on the same ones, unless
// LLMC_HOST_THREADS is set. Call it before the first kernel runs on the host.
inline void divide_processors(Exchange& exchange) {
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
}

}  // namespace llmc
