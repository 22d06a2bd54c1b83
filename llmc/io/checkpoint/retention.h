// Decides which checkpoints of a run are kept, and removes the others.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"

namespace llmc {

// The key of a checkpoint's state that is true if the checkpoint was saved only because its
// validation loss was the lowest so far.
inline constexpr const char* kOnlyBestKey = "only_best";
// The key of a checkpoint's state that is true if the last loss before the save was not finite.
inline constexpr const char* kLossNotFiniteKey = "loss_not_finite";

// The `keep` newest checkpoints are kept (0: all). Milestones are kept too: checkpoints whose step
// is a multiple of `milestone_every` (0: none). So are the checkpoint of step `best`, the one with
// the lowest validation loss, and the one named `protected_name`. Checkpoints that were saved only
// as the best one are not counted, and are removed when another is the best. Checkpoints whose loss
// is not finite are not counted either, and are removed when there is a newer checkpoint.
struct Retention {
  std::int64_t keep = 0;
  std::int64_t milestone_every = 0;
  std::optional<std::int64_t> best = {};
  std::string protected_name = {};

  bool is_milestone(std::int64_t step) const {
    return milestone_every > 0 && step % milestone_every == 0;
  }
};

namespace retention_detail {

struct OldCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  bool only_best = false;
  bool finite_loss = true;

  bool is_counted() const { return !only_best && finite_loss; }
};

inline bool has_flag(const CheckpointReader& reader, const char* key) {
  const auto value = reader.state().find(key);
  return value != reader.state().end() && value->second == Scalar(true);
}

inline OldCheckpoint describe(const CheckpointReader& reader) {
  return {reader.path(), reader.step(), has_flag(reader, kOnlyBestKey),
          !has_flag(reader, kLossNotFiniteKey)};
}

// A directory is a checkpoint of the run if its manifest is valid and its files have the right
// sizes. In addition, its name must match the step in the manifest, and its seed must be the run's.
// Torn checkpoints, links and other directories are neither counted nor removed: the result is
// empty.
inline std::optional<OldCheckpoint> checkpoint_of_run(const std::filesystem::path& path,
                                                      const Scalar& seed) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) return std::nullopt;
  if (!path.filename().string().starts_with("step_")) return std::nullopt;
  try {
    const CheckpointReader reader(path);
    const bool same_run =
        path.filename() == checkpoint_name(reader.step()) && reader.state("seed") == seed;
    if (!same_run || !reader.sizes_match()) return std::nullopt;
    return describe(reader);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns the checkpoints of a run in `root` up to `max_step`, the newest first.
inline std::vector<OldCheckpoint> checkpoints_up_to(const std::filesystem::path& root,
                                                    const Scalar& seed, std::int64_t max_step) {
  std::vector<OldCheckpoint> result;
  for (const std::filesystem::path& path : directories_in(root)) {
    const auto checkpoint = checkpoint_of_run(path, seed);
    if (checkpoint && checkpoint->step <= max_step) result.push_back(*checkpoint);
  }
  std::ranges::sort(result, std::greater<>(), &OldCheckpoint::step);
  return result;
}

// Returns the checkpoints to remove, the newest first.
inline std::vector<OldCheckpoint> surplus_checkpoints(const CheckpointReader& newest,
                                                      const Retention& retention) {
  std::vector<OldCheckpoint> older =
      checkpoints_up_to(parent_of(newest.path()), newest.state("seed"), newest.step() - 1);
  std::int64_t num_counted = describe(newest).is_counted() ? 1 : 0;
  std::erase_if(older, [&](const OldCheckpoint& checkpoint) {
    if (checkpoint.is_counted()) ++num_counted;
    if (checkpoint.step == retention.best || retention.is_milestone(checkpoint.step)) return true;
    if (checkpoint.path.filename() == retention.protected_name) return true;
    if (checkpoint.only_best) return false;
    if (retention.keep == 0) return true;
    return checkpoint.finite_loss && num_counted <= retention.keep;
  });
  return older;
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
  const CheckpointReader reader(newest);
  std::vector<std::string> removed;
  for (const auto& checkpoint : retention_detail::surplus_checkpoints(reader, retention)) {
    if (removed.empty()) reader.verify();
    remove_checkpoint(checkpoint.path);
    removed.push_back(checkpoint.path.filename().string());
  }
  return removed;
}

// Returns the name of the newest checkpoint of the run in `root` from before its losses were not
// finite; empty if there is none. The weights after `step` steps are the first ones with such a
// loss, so a checkpoint of an earlier step is preferred to one of this step.
inline std::string checkpoint_before_divergence(const std::filesystem::path& root,
                                                const Scalar& seed, std::int64_t step) {
  std::string name;
  for (const auto& checkpoint : retention_detail::checkpoints_up_to(root, seed, step)) {
    if (!checkpoint.finite_loss) continue;
    if (name.empty() || checkpoint.step < step) name = checkpoint.path.filename().string();
    if (checkpoint.step < step) break;
  }
  return name;
}

// Names of links in a run's directory: to the newest checkpoint, and to the one with the lowest
// validation loss.
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

// Makes ROOT/LINK a link to the checkpoint NAME next to it. An existing link is replaced
// atomically. Throws if that fails, for example because ROOT/LINK is a directory.
inline void set_checkpoint_link(const std::filesystem::path& root, const char* link,
                                const std::string& name) {
  const std::filesystem::path path = root / link;
  std::error_code ignored;
  if (std::filesystem::read_symlink(path, ignored) == name) return;
  const std::filesystem::path temporary = temporary_name(path);
  if (::symlink(name.c_str(), temporary.c_str()) != 0) fail_file("create the link", path, errno);
  if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  ::unlink(temporary.c_str());
  fail_file("create the link", path, error);
}

}  // namespace llmc
