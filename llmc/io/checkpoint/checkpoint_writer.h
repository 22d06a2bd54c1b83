// Writes checkpoints: a directory of safetensors files and text files, with a manifest that lists
// its content. The writer uses a temporary name, makes all files durable, and renames the directory
// at the end. So a kill or a power cut at any moment leaves older checkpoints unchanged. The writer
// knows tensors only by name, as slices, and nothing about the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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

  // Adds a file of whole tensors. Write all of them to the returned writer, which lives as long as
  // this object; `commit` finishes it. The order is kept, so it should not depend on the run.
  SafetensorsWriter& tensor_file(const std::string& name, std::vector<TensorHeader> tensors);

  // Adds a file of parts of tensors. It may hold several slices of one tensor if each has its own
  // stored_name, which is then the name for write(). Over all files of the checkpoint, the slices
  // of a tensor must hold each element once; the reader checks this.
  SafetensorsWriter& tensor_file(const std::string& name, const std::vector<Slice>& slices);

  void text_file(const std::string& name, std::string_view text);

  // Makes the checkpoint durable and gives it its name. An older checkpoint of that name, valid or
  // torn, stays unchanged until the new one is complete, and is then removed. Throws if a tensor
  // has not been written.
  void commit(std::int64_t step, const CheckpointState& state, const TrainingHistory& history = {});

  // The final directory of the checkpoint.
  const std::filesystem::path& path() const { return target_; }

 private:
  struct TensorFile {
    std::unique_ptr<SafetensorsWriter> writer;
    std::vector<Slice> parts;
  };

  void register_file(const std::string& name);

  void publish();

  std::filesystem::path root_;
  std::filesystem::path target_;
  std::optional<PendingDirectory> directory_;  // destroyed after the writers of its files
  std::set<std::string> names_;
  std::vector<TensorFile> tensor_files_;
  Manifest manifest_;
  bool committed_ = false;
};

}  // namespace llmc
