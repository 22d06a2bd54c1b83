#include "llmc/io/checkpoint/checkpoint_search.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"

namespace llmc {

std::string skipped_text(const std::filesystem::path& checkpoint, const std::string& reason) {
  return "skipped " + checkpoint.string() + ": " + reason;
}

CheckpointList list_checkpoints(const std::filesystem::path& root) {
  CheckpointList list;
  std::vector<std::pair<std::int64_t, std::filesystem::path>> candidates;
  for (const std::filesystem::path& path : directories_in(root)) {
    const std::string name = path.filename().string();
    if (is_temporary_name(name)) {
      list.warnings.push_back(skipped_text(path, "an unfinished save or removal"));
      continue;
    }
    std::error_code ignored;
    const bool manifest = std::filesystem::exists(path / kManifestName, ignored);
    const bool link = std::filesystem::is_symlink(path, ignored);
    if ((!manifest || link) && !name.starts_with("step_")) continue;  // unrelated directory
    try {
      candidates.emplace_back(CheckpointReader(path).step(), path);
    } catch (const Error& fault) {
      list.warnings.push_back(skipped_text(path, fault.what()));
    }
  }
  // A copy of a run may have directories in place of links: of equal steps, step_NNNNNN comes
  // first.
  const auto order = [](const auto& candidate) {
    const auto& [step, path] = candidate;
    return std::pair(-step, path.filename() != checkpoint_name(step));
  };
  std::ranges::stable_sort(candidates, {}, order);
  for (auto& [step, path] : candidates) list.newest_first.push_back(std::move(path));
  return list;
}

CheckpointSearchResult find_newest_checkpoint(const std::filesystem::path& root) {
  CheckpointList list = list_checkpoints(root);
  CheckpointSearchResult result{.path = {}, .step = 0, .warnings = std::move(list.warnings)};
  for (const std::filesystem::path& path : list.newest_first) {
    try {
      const CheckpointReader reader(path);
      reader.verify();
      result.path = path;
      result.step = reader.step();
      break;
    } catch (const Error& fault) {
      result.warnings.push_back(skipped_text(path, fault.what()));
    }
  }
  return result;
}

std::optional<std::filesystem::path> newest_valid_checkpoint(const std::filesystem::path& root) {
  const CheckpointSearchResult newest = find_newest_checkpoint(root);
  for (const std::string& warning : newest.warnings) Notice::warn("warning: " + warning);
  return newest.path;
}

}  // namespace llmc
