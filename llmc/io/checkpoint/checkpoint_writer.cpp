#include "llmc/io/checkpoint/checkpoint_writer.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "llmc/base/checksum.h"
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
}

SafetensorsWriter& CheckpointWriter::tensor_file(const std::string& name,
                                                 std::vector<TensorHeader> tensors) {
  register_file(name);
  tensor_files_.push_back(
      {std::make_unique<SafetensorsWriter>(directory_->path() / name, std::move(tensors)), {}});
  return *tensor_files_.back().writer;
}

SafetensorsWriter& CheckpointWriter::tensor_file(const std::string& name,
                                                 const std::vector<Slice>& slices) {
  std::vector<TensorHeader> stored;
  std::vector<Slice> parts;
  for (const Slice& slice : slices) {
    slice.check();
    stored.push_back(slice.stored_header());
    if (!slice.is_whole() || !slice.stored_name.empty()) parts.push_back(slice);
  }
  SafetensorsWriter& writer = tensor_file(name, std::move(stored));
  tensor_files_.back().parts = std::move(parts);
  return writer;
}

void CheckpointWriter::text_file(const std::string& name, std::string_view text) {
  register_file(name);
  AtomicFile file(directory_->path() / name);
  file.write(text);
  file.commit(false);
  manifest_.files.push_back({name, file.size(), checksum_text(file.checksum()), {}});
}

void CheckpointWriter::commit(std::int64_t step, const CheckpointState& state,
                              const TrainingHistory& history) {
  require(!committed_, target_.string() + " is already committed");
  for (const TensorFile& file : tensor_files_) {
    if (!file.writer->finished()) file.writer->finish(false);
    manifest_.files.push_back({file.writer->path().filename().string(), file.writer->size(),
                               checksum_text(file.writer->checksum()), file.parts});
  }
  manifest_.step = step;
  manifest_.state = state;
  manifest_.history = history;
  write_file(directory_->path() / kManifestName, manifest_text(manifest_));
  publish();
  directory_->release();
  committed_ = true;
}

void CheckpointWriter::register_file(const std::string& name) {
  require(is_plain_file_name(name) && name != kManifestName,
          "'" + name + "' is not a valid name for a file of a checkpoint");
  require(names_.insert(name).second, target_.string() + ": " + name + " is added twice");
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
