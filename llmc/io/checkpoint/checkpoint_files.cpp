#include "llmc/io/checkpoint/checkpoint_files.h"

#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

SafetensorsWriter& CheckpointFiles::tensor_file(const std::string& name,
                                                std::vector<TensorHeader> tensors) {
  register_file(name);
  tensor_files_.push_back(
      {std::make_unique<SafetensorsWriter>(directory_ / name, std::move(tensors)), {}});
  return *tensor_files_.back().writer;
}

SafetensorsWriter& CheckpointFiles::tensor_file(const std::string& name,
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

void CheckpointFiles::text_file(const std::string& name, std::string_view text) {
  register_file(name);
  AtomicFile file(directory_ / name);
  file.write(text);
  file.commit(false);
  text_files_.push_back({name, file.size(), checksum_text(file.checksum()), {}});
}

std::vector<ManifestFile> CheckpointFiles::finish() {
  std::vector<ManifestFile> files = text_files_;
  for (const TensorFile& file : tensor_files_) {
    if (!file.writer->finished()) file.writer->finish(false);
    files.push_back({file.writer->path().filename().string(), file.writer->size(),
                     checksum_text(file.writer->checksum()), file.parts});
  }
  return files;
}

void CheckpointFiles::register_file(const std::string& name) {
  require(is_plain_file_name(name) && name != kManifestName,
          "'" + name + "' is not a valid name for a file of a checkpoint");
  require(names_.insert(name).second, name_ + ": " + name + " is added twice");
}

}  // namespace llmc
