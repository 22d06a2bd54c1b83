// Resources that ranks on the same machine share: a device, processors.
#pragma once

#include <string>
#include <vector>

#include "llmc/comm/bootstrap.h"
#include "llmc/comm/exchange.h"
#include "llmc/device/device.h"

namespace llmc {

// The ranks whose text equals that of this rank, in ascending order. All ranks call this together.
std::vector<int> ranks_with_equal(const std::string& text, Exchange& exchange);

// The ranks on the same device as this one. On the host that is the machine.
inline std::vector<int> ranks_on_device(Exchange& exchange) {
  return ranks_with_equal(machine_text() + " " + device_bus_id(), exchange);
}

// Divides the processors of a machine among the ranks that may run on the same ones, unless
// LLMC_HOST_THREADS is set. Call it before the first kernel runs on the host.
void divide_processors(Exchange& exchange);

}  // namespace llmc
