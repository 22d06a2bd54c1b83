// Which checkpoints of a run stay, and the removal of the others.
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

// Of the checkpoints the `keep` newest stay (0: all), and with them the milestones: those whose
// step is a multiple of `milestone_every` (0: none).
struct Retention {
  std::int64_t keep = 0;
  std::int64_t milestone_every = 0;

  bool is_milestone(std::int64_t step) const {
    return milestone_every > 0 && step % milestone_every == 0;
  }
};

namespace retention_detail {

// A directory is a run's checkpoint if its manifest is whole, gives it the name it has, and says
// the run's seed. What is torn, or somebody else's, is nothing to be counted or removed.
inline bool is_checkpoint_of_run(const std::filesystem::path& path, const Scalar& seed,
                                 std::int64_t& step) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) return false;
  if (!path.filename().string().starts_with("step_")) return false;
  try {
    const CheckpointReader reader(path);
    step = reader.step();
    return path.filename() == checkpoint_name(step) && reader.state("seed") == seed &&
           reader.sizes_are_right();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace retention_detail

// Takes a checkpoint away: it loses its name in one act, so that a kill leaves no half of it under
// a good name, but at worst a temporary directory, which the next save removes.
inline void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path doomed = temporary_name(path);
  if (::rename(path.c_str(), doomed.c_str()) != 0) fail_file("rename", path, errno);
  sync_directory(parent_of(path));
  std::error_code error;
  std::filesystem::remove_all(doomed, error);
  if (error) fail_file("remove", doomed, error.value());
}

// After `newest` was saved in `root`: removes the older checkpoints of its run that need not stay,
// and returns their names. Before the first goes, every byte of `newest` is read again, so that the
// last good one never does. Newer ones, which a resumed run passed over, are left alone.
inline std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& newest,
                                                       const Retention& retention) {
  if (retention.keep == 0) return {};
  const CheckpointReader saved(newest);
  std::vector<std::pair<std::int64_t, std::filesystem::path>> older;
  for (const std::filesystem::path& path : directories_in(parent_of(newest))) {
    std::int64_t step = 0;
    if (!retention_detail::is_checkpoint_of_run(path, saved.state("seed"), step)) continue;
    if (step < saved.step()) older.emplace_back(step, path);
  }
  std::sort(older.rbegin(), older.rend());
  std::vector<std::string> removed;
  for (std::size_t i = static_cast<std::size_t>(retention.keep) - 1; i < older.size(); ++i) {
    if (retention.is_milestone(older[i].first)) continue;
    if (removed.empty()) saved.verify();
    remove_checkpoint(older[i].second);
    removed.push_back(older[i].second.filename().string());
  }
  return removed;
}

}  // namespace llmc
