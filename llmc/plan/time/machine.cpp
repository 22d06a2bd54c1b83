#include "llmc/plan/time/machine.h"

#include <cmath>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/plan/time/constants_file.h"
#include "llmc/plan/time/plan_file.h"

namespace llmc {

const std::vector<MachineConstant>& machine_constants() {
  static const std::vector<MachineConstant> constants = {
      {"ranks_per_node", "ranks", "GPUs of a node", &Machine::ranks_per_node},
      {"memory", "bytes", "memory of a GPU", &Machine::memory},
      {"peak_flops", "FLOP/s", "peak of dense products", &Machine::peak_flops},
      {"peak_flops_fp32", "FLOP/s", "peak of dense products in fp32", &Machine::peak_flops_fp32,
       true},
      {"product_rate", "share of peak_flops", "rate of large products", &Machine::product_rate},
      {"product_start", "s", "of a product, in addition to its work", &Machine::product_start},
      {"memory_bandwidth", "bytes/s", "of other operations", &Machine::memory_bandwidth},
      {"layer_start", "s", "of a pass through a layer, in addition to its work",
       &Machine::layer_start, true},
      {"collective_start", "s", "of a collective of n ranks, times 1 + log2 n",
       &Machine::collective_start, true},
      {"node_bandwidth", "bytes/s", "per rank, of rings inside a node", &Machine::node_bandwidth},
      {"tensor_bandwidth", "bytes/s", "per rank, of tensor groups of several nodes",
       &Machine::tensor_bandwidth},
      {"network_bandwidth", "bytes/s", "of a node to others, which its rings share",
       &Machine::network_bandwidth},
      {"message_bandwidth", "bytes/s", "per rank, to the next pipeline stage",
       &Machine::message_bandwidth},
      {"optimizer_scale", "1", "traffic of an update, as a multiple of the software's",
       &Machine::optimizer_scale, true},
      {"host_bandwidth", "bytes/s", "between a GPU and the memory of its host",
       &Machine::host_bandwidth, true},
      {"attention_rate", "share of other products", "rate of the products of attention",
       &Machine::attention_rate, true},
      {"hides_communication", "1 or 0", "whether passes compute while ranks communicate",
       &Machine::hides_communication, true},
  };
  return constants;
}

Machine read_machine(const std::string& name) {
  const std::filesystem::path path = plan_file(name, "machine");
  const Json json = parse_json(read_file(path), path.string());
  const ConstantsFile file(json, "machine", path.string());
  Machine machine;
  machine.name = file.name();
  for (const MachineConstant& constant : machine_constants()) {
    const Json* const entry = file.find(constant.name);
    const std::string place = file.place(constant.name);
    if (entry == nullptr && constant.is_optional) continue;
    require(entry != nullptr, place + " is missing");
    const Json* const value = entry->find("value");
    const Json* const origin = entry->find("origin");
    require(value != nullptr && value->is_number() && origin != nullptr && origin->is_string(),
            place + " has no value and origin",
            "write {\"value\": a number, \"origin\": where it is from}");
    const double number = value->number();
    require(std::isfinite(number) && (number > 0 || (number == 0 && constant.is_optional)),
            place + " is not a positive number");
    machine.*constant.value = number;
  }
  file.require_known(machine_constants());
  return machine;
}

Json machine_json(const Machine& machine,
                  const std::function<std::string(const MachineConstant&)>& origin_of) {
  Json constants = Json::object();
  for (const MachineConstant& constant : machine_constants()) {
    const double value = machine.*constant.value;
    if (constant.is_optional && value == Machine{}.*constant.value) continue;
    constants[constant.name] = {{"value", value},
                                {"unit", constant.unit},
                                {"meaning", constant.meaning},
                                {"origin", origin_of(constant)}};
  }
  Json json = Json::object();
  json["machine"] = machine.name;
  json["constants"] = constants;
  return json;
}

}  // namespace llmc
