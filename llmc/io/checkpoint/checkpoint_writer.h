// Writes checkpoints: a directory of safetensors files and text files, with a manifest that lists
// its content. The writer uses a temporary name, makes all files durable, and renames the directory
// at the end. So a kill or a power cut at any moment leaves older checkpoints unchanged. The writer
// knows tensors only by name, as slices, and nothing about the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_files.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/pending_directory.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

// Writes one checkpoint, which becomes visible under its name at `commit`. A writer that is
// destroyed without a commit removes its files.
class CheckpointWriter {
 public:
  // Creates `root` if it is missing and removes unfinished saves in it. Throws if nothing can be
  // written there.
  CheckpointWriter(const std::filesystem::path& root, const std::string& name);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // As in CheckpointFiles.
  SafetensorsWriter& tensor_file(const std::string& name, std::vector<TensorHeader> tensors) {
    return files_->tensor_file(name, std::move(tensors));
  }
  SafetensorsWriter& tensor_file(const std::string& name, const std::vector<Slice>& slices) {
    return files_->tensor_file(name, slices);
  }
  void text_file(const std::string& name, std::string_view text) { files_->text_file(name, text); }

  // The directory of the unfinished checkpoint, into which other ranks may write files, and adds
  // what they have written. Their content must be durable.
  const std::filesystem::path& directory() const { return directory_->path(); }
  void add(const std::vector<ManifestFile>& files);

  // Makes the checkpoint durable and gives it its name. An older checkpoint of that name, valid or
  // torn, stays unchanged until the new one is complete, and is then removed. Throws if a tensor
  // has not been written.
  void commit(std::int64_t step, const CheckpointState& state, const TrainingHistory& history = {});

  // The final directory of the checkpoint.
  const std::filesystem::path& path() const { return target_; }

 private:
  void require_different_names(const Manifest& manifest) const;
  void publish();

  std::filesystem::path root_;
  std::filesystem::path target_;
  std::optional<PendingDirectory> directory_;  // destroyed after the writers of its files
  std::optional<CheckpointFiles> files_;
  std::vector<ManifestFile> other_files_;
  bool committed_ = false;
};

}  // namespace llmc
