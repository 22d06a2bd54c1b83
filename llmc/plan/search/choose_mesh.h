// --mesh auto: the layout of a run that fits and is predicted to be the fastest.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/config/train_settings.h"
#include "llmc/plan/search/layouts.h"

namespace llmc {

// The machine and the ranks of a layout.
struct MeshRoom {
  std::string machine;          // of scripts/machines, or a file
  double ranks_per_node = 0;    // 0: that of the machine
  std::int64_t rank_bytes = 0;  // that a rank can use; 0: those of --gpu-memory or of the machine
};

struct ChosenMesh {
  Layout layout;
  std::string text;  // the layout as flags, and why
};

// Whether the flags, or the checkpoint of a resumed run, request it.
bool chooses_mesh(const Request& request, const RunFacts& facts);

// The tokens of a step of all ranks, which the choice of a layout keeps: those of
// --total-batch-tokens; else, in a resumed run, those that its steps had; else those of the other
// flags without --mesh auto.
std::int64_t kept_step_tokens(const Request& request, const RunFacts& facts);

// Throws an Error if no layout has these tokens in a step, or if none fits.
ChosenMesh choose_mesh(const Request& request, const RunFacts& facts, const MeshRoom& room);

// The flags that were given, with those of the chosen layout. Steps have the kept tokens on any
// later number of ranks too.
Request with_mesh(const Request& request, const RunFacts& facts, const Layout& layout);

}  // namespace llmc
