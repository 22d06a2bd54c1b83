// Checkpoints: a directory of safetensors files and texts, with a manifest that says what must be
// there. One is written under a temporary name, reaches the disk, and takes its name at the end, so
// that a kill or a power cut at any moment leaves the older ones as they were. It knows tensors by
// name, as slices, and nothing of the model.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/device/error.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/file.h"

namespace llmc {

// "step_000100": what a checkpoint after this many steps is called.
inline std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}

// The directories in `root`, sorted; none where there is no `root`. Throws when it cannot be read.
inline std::vector<std::filesystem::path> directories_in(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  std::filesystem::directory_iterator at(root, error);
  for (const std::filesystem::directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored)) found.push_back(at->path());
  }
  if (error && error.value() != ENOENT) fail_file("read the directory", root, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

// ---- writing -------------------------------------------------------------------------------

// Removes what saves that were killed have left in `root`, and returns the names. A save that still
// runs, in this process or another, holds a lock and is left alone.
inline std::vector<std::string> remove_unfinished_checkpoints(const std::filesystem::path& root) {
  std::vector<std::string> removed;
  for (const std::filesystem::path& path : directories_in(root)) {
    const std::string name = path.filename().string();
    if (!is_temporary_name(name)) continue;
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (!error) removed.push_back(name);
  }
  return removed;
}

// Writes one checkpoint. Nothing is seen under its name before `commit`; a writer that goes without
// a commit removes its files.
class CheckpointWriter {
 public:
  // Makes `root` where missing and clears it of unfinished saves. Throws when nothing can be
  // written there.
  CheckpointWriter(const std::filesystem::path& root, const std::string& name)
      : root_(root), target_(root / name) {
    require(is_plain_file_name(name) && !is_temporary_name(name),
            "'" + name + "' cannot name a checkpoint");
    make_directory(root);
    remove_unfinished_checkpoints(root);
    directory_ = temporary_name(target_);
    while (::mkdir(directory_.c_str(), 0777) != 0) {
      if (errno != EEXIST) fail_file("make the directory", directory_, errno);
      directory_ = temporary_name(target_);
    }
    lock_ = FileDescriptor(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Where locks do not work, none is had by a later save either, which then removes nothing.
    if (lock_) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
  }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter() {
    tensor_files_.clear();
    std::error_code ignored;
    if (!committed_) std::filesystem::remove_all(directory_, ignored);
  }

  // A file of tensors, each whole. Write all of them to what is returned, which lives as long as
  // this; `commit` finishes it. The order is kept, so it should not depend on the run.
  SafetensorsWriter& tensor_file(const std::string& name, std::vector<TensorHeader> tensors) {
    new_file(name);
    tensor_files_.push_back(
        {std::make_unique<SafetensorsWriter>(directory_ / name, std::move(tensors)), {}});
    return *tensor_files_.back().writer;
  }

  // A file of parts of tensors. Over all files of the checkpoint the slices of a tensor must hold
  // each element once; that is checked when it is read.
  SafetensorsWriter& tensor_file(const std::string& name, const std::vector<Slice>& slices) {
    std::vector<TensorHeader> stored;
    std::vector<Slice> parts;
    for (const Slice& slice : slices) {
      slice.check();
      stored.push_back(slice.stored());
      if (!slice.is_whole()) parts.push_back(slice);
    }
    SafetensorsWriter& writer = tensor_file(name, std::move(stored));
    tensor_files_.back().parts = std::move(parts);
    return writer;
  }

  void text_file(const std::string& name, std::string_view text) {
    new_file(name);
    AtomicFile file(directory_ / name);
    file.write(text);
    file.commit(false);
    manifest_.files.push_back({name, file.size(), checksum_text(file.checksum()), {}});
  }

  // Makes the checkpoint durable and gives it its name. One that had the name, good or torn, stays
  // whole until the new one is, and then goes. Throws when a tensor has not been written.
  void commit(std::int64_t step, const CheckpointState& state) {
    require(!committed_, target_.string() + " is committed already");
    for (const TensorFile& file : tensor_files_) {
      if (!file.writer->finished()) file.writer->finish(false);
      manifest_.files.push_back({file.writer->path().filename().string(), file.writer->size(),
                                 checksum_text(file.writer->checksum()), file.parts});
    }
    manifest_.step = step;
    manifest_.state = state;
    write_file(directory_ / kManifestName, manifest_text(manifest_));
    publish();
    committed_ = true;
  }

  // The directory that the checkpoint will be.
  const std::filesystem::path& path() const { return target_; }

 private:
  struct TensorFile {
    std::unique_ptr<SafetensorsWriter> writer;
    std::vector<Slice> parts;
  };

  void new_file(const std::string& name) {
    require(is_plain_file_name(name) && name != kManifestName,
            "'" + name + "' cannot name a file of a checkpoint");
    require(names_.insert(name).second, target_.string() + ": " + name + " is made twice");
  }

  void publish() {
    if (::rename(directory_.c_str(), target_.c_str()) == 0) {
      sync_directory(root_);
      return;
    }
    if (errno != ENOTEMPTY && errno != EEXIST) fail_file("name", target_, errno);
    // The name is taken. Swap the two in one act, so that at no moment there is neither.
    std::filesystem::path old = directory_;
    if (::renameat2(AT_FDCWD, directory_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) !=
        0) {
      // Not every file system can. Between these two renames the old one is still found, under a
      // name that is not a temporary one.
      old = target_;
      old += ".replaced" + directory_.extension().string().substr(4);
      if (::rename(target_.c_str(), old.c_str()) != 0) fail_file("rename", target_, errno);
      if (::rename(directory_.c_str(), target_.c_str()) != 0) fail_file("name", target_, errno);
    }
    sync_directory(root_);
    std::error_code ignored;
    std::filesystem::remove_all(old, ignored);
  }

  std::filesystem::path root_;
  std::filesystem::path target_;
  std::filesystem::path directory_;  // temporary
  FileDescriptor lock_;
  std::set<std::string> names_;
  std::vector<TensorFile> tensor_files_;
  Manifest manifest_;
  bool committed_ = false;
};

// ---- reading -------------------------------------------------------------------------------

// A checkpoint by its manifest. The constructor checks the manifest alone; `verify` reads all
// files.
class CheckpointReader {
 public:
  // Throws when the manifest is missing or not byte for byte what was written.
  explicit CheckpointReader(const std::filesystem::path& directory) : directory_(directory) {
    const std::filesystem::path path = directory / kManifestName;
    std::error_code error;
    if (!std::filesystem::exists(path, error) && !error) {
      fail(directory.string() + " is not a whole checkpoint: it has no " + kManifestName);
    }
    manifest_ = parse_manifest(read_file(path), path.string());
  }

  const std::filesystem::path& path() const { return directory_; }
  std::int64_t step() const { return manifest_.step; }
  const CheckpointState& state() const { return manifest_.state; }

  // One value of the state; throws where it has none of this name.
  const Scalar& state(const std::string& key) const {
    const auto found = manifest_.state.find(key);
    if (found == manifest_.state.end()) {
      fail((directory_ / kManifestName).string() + ": its state has no " + key);
    }
    return found->second;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const ManifestFile& file : manifest_.files) names.push_back(file.name);
    return names;
  }

  // Throws an `Error` naming the first file that is missing, of another length, or of other bytes.
  void verify() const {
    for (const ManifestFile& file : manifest_.files) verify(file);
  }

  // Whether all files are there with the lengths the manifest says: a look, where `verify` reads.
  bool sizes_are_right() const {
    return std::all_of(manifest_.files.begin(), manifest_.files.end(), [&](const auto& file) {
      std::error_code error;
      const auto size = std::filesystem::file_size(directory_ / file.name, error);
      return !error && static_cast<std::int64_t>(size) == file.bytes;
    });
  }

  std::string text(const std::string& file) const {
    return read_file(directory_ / known(file).name);
  }

  // A file of tensors; opened at the first call and kept open.
  const SafetensorsFile& open(const std::string& file) {
    auto& slot = open_[known(file).name];
    if (!slot) slot = std::make_unique<SafetensorsFile>(directory_ / file);
    return *slot;
  }

  // The names of all tensors, sorted, whichever files they are in.
  std::vector<std::string> tensors() {
    std::vector<std::string> names;
    for (const auto& [name, pieces] : index()) names.push_back(name);
    return names;
  }

  // Puts a whole tensor together from its slices, wherever they lie, as float (see
  // convert_to_float). `dst` has the elements of `shape`. Throws when it is missing, has another
  // shape, or its slices do not hold each element once.
  void load(const std::string& name, const Shape& shape, float* dst) {
    std::vector<std::byte> scratch;
    const std::span<const std::byte> bytes = whole(name, shape, scratch);
    const TensorDtype dtype = index().at(name).front().slice.dtype;
    if (convert_to_float(dtype, bytes, dst)) return;
    fail(directory_.string() + ": tensor " + name + " has dtype " + tensor_dtype_name(dtype),
         "wanted is one of F32 BF16 F16 F64");
  }

  // The same for the bytes as stored; throws also when the dtype is another.
  void load_bytes(const TensorHeader& tensor, void* dst) {
    std::vector<std::byte> scratch;
    const std::span<const std::byte> bytes = whole(tensor.name, tensor.shape, scratch);
    const TensorDtype dtype = index().at(tensor.name).front().slice.dtype;
    if (dtype != tensor.dtype) {
      fail(directory_.string() + ": tensor " + tensor.name + " has dtype " +
           tensor_dtype_name(dtype) + ", wanted is " + tensor_dtype_name(tensor.dtype));
    }
    if (!bytes.empty()) std::memcpy(dst, bytes.data(), bytes.size());
  }

 private:
  struct Piece {
    Slice slice;
    std::span<const std::byte> bytes;
  };
  using Index = std::map<std::string, std::vector<Piece>>;

  const ManifestFile& known(const std::string& name) const {
    for (const ManifestFile& file : manifest_.files) {
      if (file.name == name) return file;
    }
    fail(directory_.string() + ": the checkpoint has no file " + name);
  }

  void verify(const ManifestFile& file) const {
    const std::filesystem::path path = directory_ / file.name;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) fail(path.string() + " is missing");
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
    if (error) fail_file("examine", path, error.value());
    if (size != file.bytes) {
      fail(path.string() + " has " + std::to_string(size) + " bytes, the manifest says " +
           std::to_string(file.bytes));
    }
    Checksum checksum;
    for_each_piece(path, [&](std::span<const std::byte> piece) { checksum.add(piece); });
    if (checksum_text(checksum.value()) != file.checksum) {
      fail(path.string() + " is damaged: its checksum is " + checksum_text(checksum.value()) +
           ", the manifest says " + file.checksum);
    }
  }

  // Where each tensor's slices are, over all files of tensors.
  const Index& index() {
    if (index_) return *index_;
    Index index;
    for (const ManifestFile& file : manifest_.files) {
      if (!file.name.ends_with(".safetensors")) continue;
      std::map<std::string, Slice> parts;
      for (const Slice& slice : file.slices) parts[slice.name] = slice;
      for (const TensorEntry& tensor : open(file.name).tensors()) {
        Slice slice = Slice::whole(tensor);
        if (const auto part = parts.find(tensor.name); part != parts.end()) {
          slice = part->second;
          slice.dtype = tensor.dtype;
          slice.check();
          require(slice.stored() == static_cast<const TensorHeader&>(tensor),
                  (directory_ / file.name).string() + ": tensor " + tensor.name + " has shape " +
                      shape_text(tensor.shape) + ", its slice in the manifest another");
        }
        index[tensor.name].push_back({std::move(slice), tensor.bytes});
      }
    }
    index_ = std::move(index);
    return *index_;
  }

  // The tensor's bytes: in the file where they lie there as one, else put together in `scratch`.
  std::span<const std::byte> whole(const std::string& name, const Shape& shape,
                                   std::vector<std::byte>& scratch) {
    const auto found = index().find(name);
    if (found == index().end()) fail(directory_.string() + " has no tensor " + name);
    const std::vector<Piece>& pieces = found->second;
    const Slice& first = pieces.front().slice;
    if (first.shape != shape) {
      fail(directory_.string() + ": tensor " + name + " has shape " + shape_text(first.shape) +
           ", wanted is " + shape_text(shape));
    }
    if (pieces.size() == 1 && first.is_whole()) return pieces.front().bytes;
    std::vector<Slice> slices;
    for (const Piece& piece : pieces) slices.push_back(piece.slice);
    check_slices_cover(slices);
    scratch.resize(static_cast<std::size_t>(tensor_bytes({name, first.dtype, shape})));
    for (const Piece& piece : pieces) copy_slice_into(piece.slice, piece.bytes, scratch.data());
    return scratch;
  }

  std::filesystem::path directory_;
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
  std::optional<Index> index_;
};

// ---- finding -------------------------------------------------------------------------------

struct FoundCheckpoint {
  std::optional<std::filesystem::path> path;  // nothing where there is no good one
  std::int64_t step = 0;
  std::vector<std::string> warnings;  // one for each that was passed over, naming it and why
};

// The checkpoint in `root` with the highest step of which every byte is right. All manifests are
// read, and the files of candidates from the newest down to the first good one. A `root` that does
// not exist holds none.
inline FoundCheckpoint find_newest_checkpoint(const std::filesystem::path& root) {
  FoundCheckpoint found;
  const auto pass_over = [&](const std::filesystem::path& path, const std::string& why) {
    found.warnings.push_back("passed over " + path.string() + ": " + why);
  };
  std::vector<std::pair<std::int64_t, std::filesystem::path>> candidates;
  for (const std::filesystem::path& path : directories_in(root)) {
    const std::string name = path.filename().string();
    if (is_temporary_name(name)) {
      pass_over(path, "a save or a removal that was not finished");
      continue;
    }
    std::error_code ignored;
    const bool manifest = std::filesystem::exists(path / kManifestName, ignored);
    if (!manifest && !name.starts_with("step_")) continue;  // others may keep things here too
    try {
      candidates.emplace_back(CheckpointReader(path).step(), path);
    } catch (const Error& fault) {
      pass_over(path, fault.what());
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [step, path] : candidates) {
    try {
      CheckpointReader(path).verify();
      found.path = path;
      found.step = step;
      break;
    } catch (const Error& fault) {
      pass_over(path, fault.what());
    }
  }
  return found;
}

}  // namespace llmc
