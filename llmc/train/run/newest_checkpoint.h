// The newest valid checkpoint of a run, as all ranks agree on it.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"

namespace llmc {

struct VerifiedCheckpoint {
  std::filesystem::path path;
  FileStamps stamps;  // of its files, from before they were verified
};

// Returns the checkpoint in `root` with the highest step of which every byte is valid. Rank 0 lists
// them, each rank verifies its share of the files, and a wrong byte in any of them makes all ranks
// take the checkpoint before. Rank 0 reports skipped checkpoints. Empty if there is none. Throws on
// all ranks if one of them does not see a checkpoint that rank 0 sees.
std::optional<VerifiedCheckpoint> find_verified_checkpoint(const std::filesystem::path& root,
                                                           Exchange& exchange);

// Throws on all ranks if a file of one of them has changed since, on any rank.
void require_unchanged(const std::vector<VerifiedCheckpoint>& checkpoints, Exchange& exchange);

}  // namespace llmc
