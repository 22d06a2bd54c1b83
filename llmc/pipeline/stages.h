// The blocks of each stage of a pipeline (schedule.h).
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

// Returns `stages` + 1 bounds: stage s has the blocks bounds[s] .. bounds[s + 1] - 1. Numbers of
// blocks per stage differ by at most 1. The stages with more are in the middle, because the first
// stage also has the embedding and the last one the head; if the middle is ambiguous, they are
// nearer to the embedding, which costs less. Throws if there are fewer layers than stages.
inline std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages) {
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

// The same for a requested number of blocks of each stage. Throws if a stage has none, or if they
// are not `stages` numbers that add up to `layers`.
inline std::vector<std::int64_t> requested_stages(std::int64_t layers, std::int64_t stages,
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
