#include "llmc/io/checkpoint/retention.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/manifest.h"

namespace llmc {

namespace {

struct OldCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  bool only_best = false;
  bool finite_loss = true;

  bool is_counted() const { return !only_best && finite_loss; }
};

bool has_flag(const CheckpointReader& reader, const char* key) {
  const auto value = reader.state().find(key);
  return value != reader.state().end() && value->second == Scalar(true);
}

OldCheckpoint describe(const CheckpointReader& reader) {
  return {reader.path(), reader.step(), has_flag(reader, kOnlyBestKey),
          !has_flag(reader, kLossNotFiniteKey)};
}

// A directory is a checkpoint of the run if its manifest is valid and its files have the right
// sizes. In addition, its name must match the step in the manifest, and its seed must be the run's.
// Torn checkpoints, links and other directories are neither counted nor removed: the result is
// empty.
std::optional<OldCheckpoint> checkpoint_of_run(const std::filesystem::path& path,
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
std::vector<OldCheckpoint> checkpoints_up_to(const std::filesystem::path& root, const Scalar& seed,
                                             std::int64_t max_step) {
  std::vector<OldCheckpoint> result;
  for (const std::filesystem::path& path : directories_in(root)) {
    const auto checkpoint = checkpoint_of_run(path, seed);
    if (checkpoint && checkpoint->step <= max_step) result.push_back(*checkpoint);
  }
  std::ranges::sort(result, std::greater<>(), &OldCheckpoint::step);
  return result;
}

// Returns the checkpoints to remove, the newest first.
std::vector<OldCheckpoint> surplus_checkpoints(const CheckpointReader& newest,
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

// Removes a checkpoint. An atomic rename first gives it a temporary name. So a kill never leaves a
// partial checkpoint under a valid name, at worst a temporary directory, which the next save
// removes.
void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path temporary = temporary_name(path);
  if (::rename(path.c_str(), temporary.c_str()) != 0) fail_file("rename", path, errno);
  sync_directory(parent_of(path));
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  if (error) fail_file("remove", temporary, error.value());
}

}  // namespace

std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& newest,
                                                const Retention& retention) {
  const CheckpointReader reader(newest);
  std::vector<std::string> removed;
  for (const auto& checkpoint : surplus_checkpoints(reader, retention)) {
    if (removed.empty()) reader.verify();
    remove_checkpoint(checkpoint.path);
    removed.push_back(checkpoint.path.filename().string());
  }
  return removed;
}

std::string checkpoint_before_divergence(const std::filesystem::path& root, const Scalar& seed,
                                         std::int64_t step) {
  std::string name;
  for (const auto& checkpoint : checkpoints_up_to(root, seed, step)) {
    if (!checkpoint.finite_loss) continue;
    if (name.empty() || checkpoint.step < step) name = checkpoint.path.filename().string();
    if (checkpoint.step < step) break;
  }
  return name;
}

void set_checkpoint_link(const std::filesystem::path& root, const char* link,
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
