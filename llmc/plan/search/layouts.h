// The layouts that a run could have: tensor and pipeline ranks, chunks, ZeRO, shard groups,
// micro-batch, recomputation and offload.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/train_settings.h"
#include "llmc/plan/time/step_time.h"

namespace llmc {

// A layout that the sizes do not allow, or several with one reason.
struct RefusedLayouts {
  std::string layout;  // "--tp 3"
  std::string reason;
};

struct LayoutSpace {
  std::vector<Layout> layouts;
  std::vector<RefusedLayouts> refused;
};

// Sizes that decide which layouts there are.
struct SpaceSizes {
  std::int64_t ranks = 1, layers = 1, heads = 1;
  std::int64_t sequences = 1;       // of a step, on all ranks
  std::int64_t ranks_per_node = 1;  // tensor groups stay inside a node
  bool can_offload = true;          // whether the host has memory that the device lacks
};

// All layouts with the values of the flags that were given, and with sensible values of others:
// powers of two as micro-batches up to 64, up to 8 chunks, shard groups of all data ranks or of
// those of a node, offload of the optimizer state or of nothing.
LayoutSpace layout_space(const Request& typed, const SpaceSizes& sizes);

// The flags of a layout: "--tp 2 --pp 4 ...".
std::string flags_of(const Layout& layout);

// The layout of a run.
Layout layout_of(const RunConfig& config);

// The flags that were given, without those of a layout: for settings that do not depend on it.
Request neutral_request(const Request& typed);

// The flags that were given, with those of the layout.
Request request_of(const Request& typed, const Layout& layout);

}  // namespace llmc
