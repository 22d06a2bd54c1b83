// A machine file: the constants of a cluster from which the time of a step is predicted, each with
// its origin. scripts/machines/ has some.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "llmc/base/json.h"

namespace llmc {

// One GPU per rank (on a host: one process); nodes with a fast network inside each. Bandwidths are
// in bytes per second, times in seconds.
struct Machine {
  std::string name;
  double ranks_per_node = 8;
  double memory = 0;           // bytes of a rank
  double peak_flops = 0;       // FLOP/s of dense products in the dtype of the run, 16 bits
  double peak_flops_fp32 = 0;  // in fp32; 0: unknown
  // A product of F FLOP takes product_start + F / (peak_flops * product_rate).
  double product_rate = 0, product_start = 0;
  double memory_bandwidth = 0;  // of operations that read and write the memory of the device
  double layer_start = 0;       // time that a pass through one layer takes beyond its work
  // A collective of n ranks takes collective_start * (1 + log2 n) plus its bytes.
  double collective_start = 0;
  double node_bandwidth = 0;    // that a ring of ranks has inside a node, per rank
  double tensor_bandwidth = 0;  // that a tensor group has between nodes, per rank
  // Of a node, one direction: its rings between nodes share it.
  double network_bandwidth = 0;
  double message_bandwidth = 0;  // between the ranks of neighbouring pipeline stages, per rank
  double optimizer_scale = 1;    // bytes that an update moves, as a multiple of the software's
  double host_bandwidth = 0;     // between the memory of a device and that of its host, per rank
  double attention_rate = 0;     // of the products of attention; 0: the software's
  // 0: communication occupies the processors that compute, so nothing hides it.
  double hides_communication = 1;
};

// A member of Machine, with its name in a file, its unit and its meaning.
struct MachineConstant {
  const char* name;
  const char* unit;
  const char* meaning;
  double Machine::*value;
  bool is_optional = false;  // missing: the default of Machine
};
const std::vector<MachineConstant>& machine_constants();

// The machine of a name or a file (plan_file.h). Throws an Error that names the file and the
// constant if one is missing, unknown or not positive.
Machine read_machine(const std::string& name);

// The JSON of a machine file. `origin_of` each constant.
Json machine_json(const Machine& machine,
                  const std::function<std::string(const MachineConstant&)>& origin_of);

}  // namespace llmc
