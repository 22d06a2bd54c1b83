// Reads checkpoints of `CheckpointWriter`. The reader trusts only the manifest's checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json_value.h"
#include "llmc/base/work_progress.h"
#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

// Device, inode, size and time of the last change of each file of a checkpoint.
using FileStamps = std::vector<std::array<std::int64_t, 5>>;

// A checkpoint, opened by its manifest. The constructor checks only the manifest; `verify` reads
// all files.
class CheckpointReader {
 public:
  // Throws if the manifest is missing or not byte for byte as written.
  explicit CheckpointReader(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return directory_; }
  std::int64_t step() const { return manifest_.step; }
  const CheckpointState& state() const { return manifest_.state; }
  const TrainingHistory& history() const { return manifest_.history; }

  // Returns one value of the state. Throws if the state has no value of this name.
  const Scalar& state(const std::string& key) const;

  std::vector<std::string> files() const;

  // Throws an `Error` that names the first file that is missing, or whose size or checksum is
  // wrong. With several ranks, each can verify its share, from 0: files are dealt by size.
  void verify(int share = 0, int shares = 1) const;

  // Identifies the present content of all files, without reading them: throws if one is missing.
  FileStamps stamps() const;
  // Throws if a file is not as it was when stamps() returned this.
  void require_unchanged(const FileStamps& before) const;

  // Returns whether all files exist with the sizes in the manifest. Unlike `verify`, does not read
  // them.
  bool sizes_match() const;

  std::string text(const std::string& file) const {
    return read_file(directory_ / file_entry(file).name);
  }

  // Returns a file of tensors. It is opened at the first call and stays open.
  const SafetensorsFile& open(const std::string& file);

  // The names of all tensors in all files, sorted.
  std::vector<std::string> tensors();

  // Assembles a whole tensor from its slices in all files, as float (see convert_to_float). `dst`
  // has room for the elements of `shape`. Throws if the tensor is missing, has another shape or a
  // dtype that cannot be converted, if its slices do not hold each element once, or if an element
  // is not finite.
  void load(const std::string& name, const Shape& shape, float* dst);

  // The same for a part of a tensor, a box or a flat range of it, whose name and shape it has.
  // `dst` has room for part.count() elements. Reads only these from whatever slices have them.
  void load_part(const Slice& part, float* dst);

  // Bytes of tensors read so far, as they are stored.
  std::int64_t bytes_read() const { return bytes_read_; }

  // Returns the tensor's file and name for an error: "RUN/step_000100/model.safetensors: tensor
  // transformer.wte.weight"; of a tensor in several files, the directory and the name.
  std::string label(const std::string& name);

  // Like `load`, but copies the bytes as stored. Throws also if the dtype differs.
  void load_bytes(const TensorHeader& tensor, void* dst);

 private:
  struct StoredSlice {
    Slice slice;
    std::string file;  // without its directory
    const TensorEntry* entry;
  };
  using Index = std::map<std::string, std::vector<StoredSlice>>;

  const ManifestFile& file_entry(const std::string& name) const;

  std::vector<const ManifestFile*> files_of(int share, int shares) const;
  void verify(const ManifestFile& file, WorkProgress& progress) const;

  static bool is_in_one_piece(const std::vector<StoredSlice>& slices) {
    return slices.size() == 1 && slices.front().slice.is_whole();
  }

  // Returns the slices of each tensor in all files of tensors.
  const Index& index();

  // The bytes of a tensor: mapped if a file has it in one piece, else assembled from its slices.
  struct TensorBytes {
    MappedFile map;
    std::vector<std::byte> assembled;

    std::span<const std::byte> bytes() const {
      return assembled.empty() ? map.bytes() : std::span<const std::byte>(assembled);
    }
  };
  TensorBytes bytes_of(const std::string& name, const Shape& shape);

  // The slices of a tensor. Throws if it is missing or has another shape, or if its slices do not
  // hold each element once, which is checked at the first call.
  const std::vector<StoredSlice>& slices_of(const std::string& name, const Shape& shape);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> open_files_;
  std::optional<Index> index_;
  std::set<std::string> complete_;  // tensors whose slices hold each element once
  std::int64_t bytes_read_ = 0;
};

}  // namespace llmc
