#include "llmc/pipeline/stages.h"

#include <iterator>
#include <string>

#include "llmc/base/error.h"

namespace llmc {

std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages) {
  require(stages >= 1, "pipeline: " + std::to_string(stages) + " stages; allowed: 1 or more");
  require(layers >= stages,
          "pipeline: " + std::to_string(layers) + " layers and " + std::to_string(stages) +
              " stages; allowed: at least one layer per stage",
          "use fewer " + quantity("pipeline ranks") + " or fewer " + quantity("pipeline chunks"));
  const std::int64_t larger = layers % stages, first_larger = (stages - larger) / 2;
  std::vector<std::int64_t> bounds = {0};
  for (std::int64_t s = 0; s < stages; ++s) {
    const bool has_more = first_larger <= s && s < first_larger + larger;
    bounds.push_back(bounds.back() + layers / stages + (has_more ? 1 : 0));
  }
  return bounds;
}

std::vector<std::int64_t> requested_stages(std::int64_t layers, std::int64_t stages,
                                           const std::vector<std::int64_t>& blocks) {
  const std::string name = quantity("layers per stage");
  require(std::ssize(blocks) == stages,
          name + ": " + std::to_string(blocks.size()) + " numbers; allowed: one for each of the " +
              std::to_string(stages) + " stages, in the order of the model");
  std::vector<std::int64_t> bounds = {0};
  for (const std::int64_t count : blocks) {
    require(count >= 1, name + ": a stage with " + std::to_string(count) +
                            " layers; allowed: at least one layer per stage");
    require(count <= layers - bounds.back(),
            name + ": more than the " + std::to_string(layers) + " layers of the model");
    bounds.push_back(bounds.back() + count);
  }
  require(bounds.back() == layers, name + ": " + std::to_string(bounds.back()) +
                                       " layers in all; allowed: the " + std::to_string(layers) +
                                       " layers of the model");
  return bounds;
}

}  // namespace llmc
