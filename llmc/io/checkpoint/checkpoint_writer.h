// Writes checkpoints: a directory of safetensors files and text files, with a manifest that lists
// its content. The writer uses a temporary name, makes all files durable, and renames the directory
// at the end. So a kill or a power cut at any moment leaves older checkpoints unchanged. The writer
// knows tensors only by name, as slices, and nothing about the model.
#pragma once

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/pending_directory.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"

namespace llmc {

// Writes one checkpoint, which becomes visible under its name at `commit`. A writer that is
// destroyed without a commit removes its files.
class CheckpointWriter {
 public:
  // Creates `root` if it is missing and removes unfinished saves in it. Throws if nothing can be
  // written there.
  CheckpointWriter(const std::filesystem::path& root, const std::string& name)
      : root_(root), target_(root / name) {
    require(is_plain_file_name(name) && !is_temporary_name(name),
            "'" + name + "' is not a valid name for a checkpoint");
    make_directory(root);
    remove_unfinished_directories(root);
    directory_.emplace(target_);
  }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Adds a file of whole tensors. Write all of them to the returned writer, which lives as long as
  // this object; `commit` finishes it. The order is kept, so it should not depend on the run.
  SafetensorsWriter& tensor_file(const std::string& name, std::vector<TensorHeader> tensors) {
    register_file(name);
    tensor_files_.push_back(
        {std::make_unique<SafetensorsWriter>(directory_->path() / name, std::move(tensors)), {}});
    return *tensor_files_.back().writer;
  }

  // Adds a file of parts of tensors. It may hold several slices of one tensor if each has its own
  // stored_name, which is then the name for write(). Over all files of the checkpoint, the slices
  // of a tensor must hold each element once; the reader checks this.
  SafetensorsWriter& tensor_file(const std::string& name, const std::vector<Slice>& slices) {
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

  void text_file(const std::string& name, std::string_view text) {
    register_file(name);
    AtomicFile file(directory_->path() / name);
    file.write(text);
    file.commit(false);
    manifest_.files.push_back({name, file.size(), checksum_text(file.checksum()), {}});
  }

  // Makes the checkpoint durable and gives it its name. An older checkpoint of that name, valid or
  // torn, stays unchanged until the new one is complete, and is then removed. Throws if a tensor
  // has not been written.
  void commit(std::int64_t step, const CheckpointState& state,
              const TrainingHistory& history = {}) {
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

  // The final directory of the checkpoint.
  const std::filesystem::path& path() const { return target_; }

 private:
  struct TensorFile {
    std::unique_ptr<SafetensorsWriter> writer;
    std::vector<Slice> parts;
  };

  void register_file(const std::string& name) {
    require(is_plain_file_name(name) && name != kManifestName,
            "'" + name + "' is not a valid name for a file of a checkpoint");
    require(names_.insert(name).second, target_.string() + ": " + name + " is added twice");
  }

  void publish() {
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

  std::filesystem::path root_;
  std::filesystem::path target_;
  std::optional<PendingDirectory> directory_;  // destroyed after the writers of its files
  std::set<std::string> names_;
  std::vector<TensorFile> tensor_files_;
  Manifest manifest_;
  bool committed_ = false;
};

}  // namespace llmc
