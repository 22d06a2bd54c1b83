// Writes files of a checkpoint into the directory of an unfinished save. Each rank of a run can
// write some of them.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

class CheckpointFiles {
 public:
  // Errors call the checkpoint `name`.
  CheckpointFiles(std::filesystem::path directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  // Adds a file of whole tensors. Write all of them to the returned writer, which lives as long as
  // this object; `finish` finishes it. The order is kept, so it should not depend on the run.
  SafetensorsWriter& tensor_file(const std::string& name, std::vector<TensorHeader> tensors);

  // Adds a file of parts of tensors. It may hold several slices of one tensor if each has its own
  // stored_name, which is then the name for write(). Over all files of the checkpoint, the slices
  // of a tensor must hold each element once; the reader checks this.
  SafetensorsWriter& tensor_file(const std::string& name, const std::vector<Slice>& slices);

  void text_file(const std::string& name, std::string_view text);

  // Makes the content of all files durable and returns what the manifest lists of them. Throws if a
  // tensor has not been written.
  std::vector<ManifestFile> finish();

 private:
  struct TensorFile {
    std::unique_ptr<SafetensorsWriter> writer;
    std::vector<Slice> parts;
  };

  void register_file(const std::string& name);

  std::filesystem::path directory_;
  std::string name_;
  std::set<std::string> names_;
  std::vector<TensorFile> tensor_files_;
  std::vector<ManifestFile> text_files_;
};

}  // namespace llmc
