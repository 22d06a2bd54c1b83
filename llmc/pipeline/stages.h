// The blocks of each stage of a pipeline (schedule.h).
#pragma once

#include <cstdint>
#include <vector>

namespace llmc {

// Returns `stages` + 1 bounds: stage s has the blocks bounds[s] .. bounds[s + 1] - 1. Numbers of
// blocks per stage differ by at most 1. The stages with more are in the middle, because the first
// stage also has the embedding and the last one the head; if the middle is ambiguous, they are
// nearer to the embedding, which costs less. Throws if there are fewer layers than stages.
std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages);

// The same for a requested number of blocks of each stage. Throws if a stage has none, or if they
// are not `stages` numbers that add up to `layers`.
std::vector<std::int64_t> requested_stages(std::int64_t layers, std::int64_t stages,
                                           const std::vector<std::int64_t>& blocks);

}  // namespace llmc
