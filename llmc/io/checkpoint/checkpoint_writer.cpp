#include "llmc/io/checkpoint/checkpoint_writer.h"

#include <fcntl.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

CheckpointWriter::CheckpointWriter(const std::filesystem::path& root, const std::string& name)
    : root_(root), target_(root / name) {
  require(is_plain_file_name(name) && !is_temporary_name(name),
          "'" + name + "' is not a valid name for a checkpoint");
  make_directory(root);
  remove_unfinished_directories(root);
  directory_.emplace(target_);
  files_.emplace(directory_->path(), target_.string());
}

void CheckpointWriter::add(const std::vector<ManifestFile>& files) {
  other_files_.insert(other_files_.end(), files.begin(), files.end());
}

void CheckpointWriter::require_different_names(const Manifest& manifest) const {
  std::set<std::string> names;
  for (const ManifestFile& file : manifest.files) {
    require(names.insert(file.name).second,
            target_.string() + ": " + file.name + " is added twice");
  }
}

void CheckpointWriter::commit(std::int64_t step, const CheckpointState& state,
                              const TrainingHistory& history) {
  require(!committed_, target_.string() + " is already committed");
  Manifest manifest{.step = step, .state = state, .history = history, .files = files_->finish()};
  manifest.files.insert(manifest.files.end(), other_files_.begin(), other_files_.end());
  require_different_names(manifest);
  write_file(directory_->path() / kManifestName, manifest_text(manifest));
  publish();
  directory_->release();
  committed_ = true;
}

void CheckpointWriter::publish() {
  const std::filesystem::path& directory = directory_->path();
  if (::rename(directory.c_str(), target_.c_str()) == 0) {
    sync_directory(root_);
    return;
  }
  if (errno != ENOTEMPTY && errno != EEXIST) fail_file("name", target_, errno);
  // The name is taken. Swap the two directories atomically, so that the name always exists.
  std::filesystem::path old = directory;
  if (::renameat2(AT_FDCWD, directory.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system supports the swap. Between these two renames the old checkpoint can
    // still be found, under a name that is not temporary.
    old = target_;
    old += ".replaced" + directory.extension().string().substr(4);
    if (::rename(target_.c_str(), old.c_str()) != 0) fail_file("rename", target_, errno);
    if (::rename(directory.c_str(), target_.c_str()) != 0) fail_file("name", target_, errno);
  }
  sync_directory(root_);
  std::error_code ignored;
  std::filesystem::remove_all(old, ignored);
}

}  // namespace llmc
