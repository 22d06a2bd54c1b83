#include "llmc/plan/time/software.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

const std::vector<SoftwareConstant>& software_constants() {
  static const std::vector<SoftwareConstant> constants = {
      {"score_values", "per score of attention and forward pass; 0: on chip",
       &Software::score_values},
      {"divided_values", "per token and channel, divided by tensor ranks",
       &Software::divided_values},
      {"copied_values", "per token and channel, on each tensor rank", &Software::copied_values},
      {"logit_values", "per logit, both passes", &Software::logit_values},
      {"attention_rate", "products of attention, relative to others", &Software::attention_rate},
      {"weight_bytes", "of a weight or an activation", &Software::weight_bytes},
      {"gradient_bytes", "of a reduced gradient", &Software::gradient_bytes},
      {"optimizer_bytes", "per parameter and update", &Software::optimizer_bytes},
      {"recompute_sums", "all-reduces of a layer that is recomputed in full",
       &Software::recompute_sums},
      {"overlaps_messages", "1: messages of a pipeline do not stop their ranks",
       &Software::overlaps_messages},
      {"divides_messages", "1: tensor ranks divide a message", &Software::divides_messages},
      {"overlaps_gradients", "1: a backward pass hides the reduction of gradients",
       &Software::overlaps_gradients},
      {"overlaps_gathers", "1: passes hide the gathers of ZeRO-3", &Software::overlaps_gathers},
  };
  return constants;
}

Software read_software(const std::filesystem::path& path) {
  const std::string source = path.string();
  const Json json = parse_json(read_file(path), source);
  const Json* const name = json.find("software");
  const Json* const constants = json.find("constants");
  require(name != nullptr && name->is_string() && constants != nullptr && constants->is_object(),
          source + " is not a software file",
          "it has \"software\": a name, and \"constants\": an object");
  const Json* const accuracy = json.find("accuracy");
  require(accuracy != nullptr && accuracy->is_string(), source + ": accuracy is not a text");
  Software software{.name = name->text(), .accuracy = accuracy->text()};
  for (const SoftwareConstant& constant : software_constants()) {
    const Json* const entry = constants->find(constant.name);
    const Json* const value = entry == nullptr ? nullptr : entry->find("value");
    const std::string place = source + ": " + constant.name;
    require(value != nullptr && value->is_number(), place + " has no value");
    const double number = value->number();
    require(std::isfinite(number) && number >= 0, place + " is negative");
    software.*constant.value = number;
  }
  for (const JsonMember& member : constants->items()) {
    require(std::ranges::any_of(software_constants(),
                                [&](const SoftwareConstant& c) { return member.key == c.name; }),
            source + ": no constant is called " + member.key);
  }
  return software;
}

}  // namespace llmc
