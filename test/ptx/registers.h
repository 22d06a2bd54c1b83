// Places for the registers of a kernel: registers that are never needed at the same time share one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "test/ptx/control_flow.h"
#include "test/ptx/program.h"

namespace llmc_ptx {

// The registers that a statement reads and writes.
struct Use {
  std::vector<std::string> reads, writes;
  bool writes_all_lanes = true;  // false: lanes without the predicate keep the old value
};

struct RegisterPlaces {
  std::map<std::string, Operand> places;
  std::int64_t bytes = 0;
  // Those that a path to a statement that reads them may not have written.
  std::vector<std::string> undefined_at_start;
};

// `uses`: one per statement of the function. `first` is the first free byte.
RegisterPlaces place_registers(const Function& function, const ControlFlow& flow,
                               const std::vector<Use>& uses, std::int64_t first);

}  // namespace llmc_ptx
