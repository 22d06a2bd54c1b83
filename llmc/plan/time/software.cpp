#include "llmc/plan/time/software.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/plan/time/constants_file.h"
#include "llmc/plan/time/plan_file.h"

namespace llmc {

namespace {

// A member of Software, with its name in a file.
struct SoftwareConstant {
  const char* name;
  double Software::*value;
};

const std::vector<SoftwareConstant>& software_constants() {
  static const std::vector<SoftwareConstant> constants = {
      {"score_values", &Software::score_values},
      {"divided_values", &Software::divided_values},
      {"copied_values", &Software::copied_values},
      {"logit_values", &Software::logit_values},
      {"attention_rate", &Software::attention_rate},
      {"weight_bytes", &Software::weight_bytes},
      {"gradient_bytes", &Software::gradient_bytes},
      {"optimizer_bytes", &Software::optimizer_bytes},
      {"accumulation_bytes", &Software::accumulation_bytes},
      {"recompute_sums", &Software::recompute_sums},
      {"overlaps_messages", &Software::overlaps_messages},
      {"divides_messages", &Software::divides_messages},
      {"overlaps_gradients", &Software::overlaps_gradients},
      {"overlaps_gathers", &Software::overlaps_gathers},
      {"counted_traffic", &Software::counted_traffic},
  };
  return constants;
}

}  // namespace

Software read_software(const std::string& name) {
  const std::filesystem::path path = plan_file(name, "software");
  const Json json = parse_json(read_file(path), path.string());
  const ConstantsFile file(json, "software", path.string());
  const Json* const accuracy = json.find("accuracy");
  require(accuracy != nullptr && accuracy->is_string(), file.place("accuracy") + " is not a text");
  Software software{.name = file.name(), .accuracy = accuracy->text()};
  for (const SoftwareConstant& constant : software_constants()) {
    const Json* const entry = file.find(constant.name);
    const Json* const value = entry == nullptr ? nullptr : entry->find("value");
    const std::string place = file.place(constant.name);
    require(value != nullptr && value->is_number(), place + " has no value");
    const double number = value->number();
    require(std::isfinite(number) && number >= 0, place + " is negative");
    software.*constant.value = number;
  }
  file.require_known(software_constants());
  return software;
}

}  // namespace llmc
