// Finds the newest valid checkpoint of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace llmc {

struct CheckpointList {
  std::vector<std::filesystem::path> newest_first;  // those whose manifest is valid
  std::vector<std::string> warnings;  // one per skipped directory: its path and the reason
};

// Reads the manifests of the checkpoints in `root`. Links such as `latest` are other names of
// checkpoints and not listed. A `root` that does not exist contains no checkpoint.
CheckpointList list_checkpoints(const std::filesystem::path& root);

// "skipped RUN/step_000100: REASON"
std::string skipped_text(const std::filesystem::path& checkpoint, const std::string& reason);

struct CheckpointSearchResult {
  std::optional<std::filesystem::path> path;  // empty if there is no valid checkpoint
  std::int64_t step = 0;
  std::vector<std::string> warnings;  // one per skipped directory: its path and the reason
};

// Returns the listed checkpoint with the highest step of which every byte is valid. Reads the files
// of candidates from the newest to the first valid one.
CheckpointSearchResult find_newest_checkpoint(const std::filesystem::path& root);

// Like find_newest_checkpoint(), and prints why others were skipped. Empty if there is none.
std::optional<std::filesystem::path> newest_valid_checkpoint(const std::filesystem::path& root);

}  // namespace llmc
