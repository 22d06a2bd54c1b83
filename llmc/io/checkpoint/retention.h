// Decides which checkpoints of a run are kept, and removes the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"

namespace llmc {

// The `keep` newest checkpoints are kept (0: all). Milestones are kept too: checkpoints whose step
// is a multiple of `milestone_every` (0: none).
struct Retention {
  std::int64_t keep = 0;
  std::int64_t milestone_every = 0;

  bool is_milestone(std::int64_t step) const {
    return milestone_every > 0 && step % milestone_every == 0;
  }
};

namespace retention_detail {

// A directory is a checkpoint of the run if its manifest is valid and its files have the right
// sizes. In addition, its name must match the step in the manifest, and its seed must be the run's.
// Torn checkpoints, links and other directories are neither counted nor removed.
inline bool is_checkpoint_of_run(const std::filesystem::path& path, const Scalar& seed,
                                 std::int64_t& step) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) return false;
  if (!path.filename().string().starts_with("step_")) return false;
  try {
    const CheckpointReader reader(path);
    step = reader.step();
    return path.filename() == checkpoint_name(step) && reader.state("seed") == seed &&
           reader.sizes_match();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace retention_detail

// Removes a checkpoint. An atomic rename first gives it a temporary name. So a kill never leaves a
// partial checkpoint under a valid name, at worst a temporary directory, which the next save
// removes.
inline void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path temporary = temporary_name(path);
  if (::rename(path.c_str(), temporary.c_str()) != 0) fail_file("rename", path, errno);
  sync_directory(parent_of(path));
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  if (error) fail_file("remove", temporary, error.value());
}

// Removes the checkpoints that are older than `newest`, from the same run and not kept by
// `retention`. Returns their names. Reads every byte of `newest` again before the first removal, so
// that the last valid checkpoint is never removed. Newer checkpoints, which a resumed run has
// skipped, are not touched.
inline std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& newest,
                                                       const Retention& retention) {
  if (retention.keep == 0) return {};
  const CheckpointReader reader(newest);
  std::vector<std::pair<std::int64_t, std::filesystem::path>> older;
  for (const std::filesystem::path& path : directories_in(parent_of(newest))) {
    std::int64_t step = 0;
    if (!retention_detail::is_checkpoint_of_run(path, reader.state("seed"), step)) continue;
    if (step < reader.step()) older.emplace_back(step, path);
  }
  std::sort(older.rbegin(), older.rend());
  std::vector<std::string> removed;
  for (std::size_t i = static_cast<std::size_t>(retention.keep) - 1; i < older.size(); ++i) {
    if (retention.is_milestone(older[i].first)) continue;
    if (removed.empty()) reader.verify();
    remove_checkpoint(older[i].second);
    removed.push_back(older[i].second.filename().string());
  }
  return removed;
}

}  // namespace llmc
