#include "llmc/io/checkpoint/checkpoint_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/read_part.h"

namespace llmc {

CheckpointReader::CheckpointReader(const std::filesystem::path& directory) : directory_(directory) {
  const std::filesystem::path path = directory / kManifestName;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    fail(directory.string() + " is not a complete checkpoint: it has no " + kManifestName);
  }
  manifest_ = parse_manifest(read_file(path), path.string());
}

const Scalar& CheckpointReader::state(const std::string& key) const {
  const auto entry = manifest_.state.find(key);
  if (entry == manifest_.state.end()) {
    fail((directory_ / kManifestName).string() + ": its state has no " + key);
  }
  return entry->second;
}

std::vector<std::string> CheckpointReader::files() const {
  std::vector<std::string> names;
  for (const ManifestFile& file : manifest_.files) names.push_back(file.name);
  return names;
}

std::vector<const ManifestFile*> CheckpointReader::files_of(int share, int shares) const {
  std::vector<const ManifestFile*> order, own;
  for (const ManifestFile& file : manifest_.files) order.push_back(&file);
  std::ranges::stable_sort(order, std::ranges::greater(), &ManifestFile::bytes);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(shares));
  for (const ManifestFile* file : order) {
    const auto least = std::ranges::min_element(bytes);
    *least += file->bytes;
    if (least - bytes.begin() == share) own.push_back(file);
  }
  return own;
}

void CheckpointReader::verify(int share, int shares) const {
  const std::vector<const ManifestFile*> own = files_of(share, shares);
  std::int64_t bytes = 0;
  for (const ManifestFile* file : own) bytes += file->bytes;
  WorkProgress progress("verifying " + directory_.string(), bytes);
  for (const ManifestFile* file : own) verify(*file, progress);
}

FileStamps CheckpointReader::stamps() const {
  FileStamps stamps;
  for (const ManifestFile& file : manifest_.files) {
    struct stat status {};
    const std::filesystem::path path = directory_ / file.name;
    if (::stat(path.c_str(), &status) != 0) fail_file("examine", path, errno);
    constexpr std::int64_t kNanoseconds = 1'000'000'000;
    stamps.push_back({static_cast<std::int64_t>(status.st_dev),
                      static_cast<std::int64_t>(status.st_ino), status.st_size,
                      status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec,
                      status.st_ctim.tv_sec * kNanoseconds + status.st_ctim.tv_nsec});
  }
  return stamps;
}

void CheckpointReader::require_unchanged(const FileStamps& before) const {
  const FileStamps now = stamps();
  require(now.size() == before.size(), directory_.string() + " is another checkpoint than before");
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == before[i]) continue;
    fail((directory_ / manifest_.files[i].name).string() + " was changed while it was read",
         "start again when nothing else writes there");
  }
}

bool CheckpointReader::sizes_match() const {
  return std::all_of(manifest_.files.begin(), manifest_.files.end(), [&](const auto& file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(directory_ / file.name, error);
    return !error && static_cast<std::int64_t>(size) == file.bytes;
  });
}

const SafetensorsFile& CheckpointReader::open(const std::string& file) {
  auto& entry = open_files_[file_entry(file).name];
  if (!entry) entry = std::make_unique<SafetensorsFile>(directory_ / file);
  return *entry;
}

std::vector<std::string> CheckpointReader::tensors() {
  std::vector<std::string> names;
  for (const auto& [name, slices] : index()) names.push_back(name);
  return names;
}

void CheckpointReader::load(const std::string& name, const Shape& shape, float* dst) {
  const std::vector<StoredSlice>& slices = slices_of(name, shape);
  if (is_in_one_piece(slices)) {
    const StoredSlice& slice = slices.front();
    bytes_read_ += slice.entry->size;
    return open(slice.file).read_as_float(*slice.entry, dst);
  }
  const TensorBytes stored = bytes_of(name, shape);
  const TensorDtype dtype = slices.front().slice.dtype;
  read_floats(dtype, shape, stored.bytes(), dst, [&] { return label(name); });
}

std::string CheckpointReader::label(const std::string& name) {
  const std::vector<StoredSlice>& stored = index().at(name);
  const auto is_first = [&](const StoredSlice& part) { return part.file == stored.front().file; };
  const bool one_file = std::ranges::all_of(stored, is_first);
  return (one_file ? directory_ / stored.front().file : directory_).string() + ": tensor " + name;
}

void CheckpointReader::load_bytes(const TensorHeader& tensor, void* dst) {
  const TensorBytes stored = bytes_of(tensor.name, tensor.shape);
  const std::span<const std::byte> bytes = stored.bytes();
  const TensorDtype dtype = index().at(tensor.name).front().slice.dtype;
  if (dtype != tensor.dtype) {
    fail(directory_.string() + ": tensor " + tensor.name + " has dtype " +
         tensor_dtype_name(dtype) + ", expected " + tensor_dtype_name(tensor.dtype));
  }
  if (!bytes.empty()) std::memcpy(dst, bytes.data(), bytes.size());
}

const ManifestFile& CheckpointReader::file_entry(const std::string& name) const {
  for (const ManifestFile& file : manifest_.files) {
    if (file.name == name) return file;
  }
  fail(directory_.string() + ": the checkpoint has no file " + name);
}

void CheckpointReader::verify(const ManifestFile& file, WorkProgress& progress) const {
  const std::filesystem::path path = directory_ / file.name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) fail(path.string() + " is missing");
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) fail_file("examine", path, error.value());
  if (size != file.bytes) {
    fail(path.string() + " has " + std::to_string(size) + " bytes, but the manifest lists " +
         std::to_string(file.bytes));
  }
  Checksum checksum;
  for_each_piece(path, [&](std::span<const std::byte> piece) {
    checksum.add(piece);
    progress.add(std::ssize(piece));
  });
  if (checksum_text(checksum.value()) != file.checksum) {
    fail(path.string() + " is damaged: its checksum is " + checksum_text(checksum.value()) +
         ", but the manifest lists " + file.checksum);
  }
}

const CheckpointReader::Index& CheckpointReader::index() {
  if (index_) return *index_;
  Index index;
  for (const ManifestFile& file : manifest_.files) {
    if (!file.name.ends_with(".safetensors")) continue;
    const std::string path = (directory_ / file.name).string();
    std::map<std::string, Slice> parts;  // by name in the file
    for (const Slice& slice : file.slices) {
      require(parts.emplace(slice.name_in_file(), slice).second,
              path + ": the manifest has two slices that are stored as " +
                  printable(slice.name_in_file()));
    }
    for (const TensorEntry& tensor : open(file.name).tensors()) {
      Slice slice = Slice::whole(tensor);
      if (const auto part = parts.find(tensor.name); part != parts.end()) {
        slice = part->second;
        slice.dtype = tensor.dtype;
        slice.check();
        require(slice.stored_header() == static_cast<const TensorHeader&>(tensor),
                path + ": tensor " + printable(tensor.name) + " has shape " +
                    shape_text(tensor.shape) + ", but its slice in the manifest has another");
        parts.erase(part);
      }
      index[slice.name].push_back({slice, file.name, &tensor});
    }
    if (parts.empty()) continue;
    const auto& [stored, slice] = *parts.begin();
    fail(path + " has no tensor " + printable(stored) +
         ", which the manifest lists as a slice of " + printable(slice.name));
  }
  index_ = std::move(index);
  return *index_;
}

const std::vector<CheckpointReader::StoredSlice>& CheckpointReader::slices_of(
    const std::string& name, const Shape& shape) {
  const auto entry = index().find(name);
  if (entry == index().end()) fail(directory_.string() + " has no tensor " + name);
  const std::vector<StoredSlice>& stored = entry->second;
  const Slice& first = stored.front().slice;
  if (first.shape != shape) {
    fail(directory_.string() + ": tensor " + name + " has shape " + shape_text(first.shape) +
         ", expected " + shape_text(shape));
  }
  if (is_in_one_piece(stored) || complete_.contains(name)) return stored;
  std::vector<Slice> slices;
  for (const StoredSlice& part : stored) slices.push_back(part.slice);
  check_slices_cover(slices);
  complete_.insert(name);
  return stored;
}

CheckpointReader::TensorBytes CheckpointReader::bytes_of(const std::string& name,
                                                         const Shape& shape) {
  const std::vector<StoredSlice>& stored = slices_of(name, shape);
  const Slice& first = stored.front().slice;
  const auto map = [&](const StoredSlice& part) { return open(part.file).map(*part.entry); };
  const TensorHeader whole = {name, first.dtype, shape};
  bytes_read_ += tensor_bytes(whole);
  if (is_in_one_piece(stored)) return {.map = map(stored.front()), .assembled = {}};
  TensorBytes result;
  result.assembled.resize(static_cast<std::size_t>(tensor_bytes(whole)));
  for (const StoredSlice& part : stored) {
    copy_slice_into(part.slice, map(part).bytes(), result.assembled.data());
  }
  return result;
}

void CheckpointReader::load_part(const Slice& part, float* dst) {
  const std::vector<StoredSlice>& stored = slices_of(part.name, part.shape);
  const TensorDtype dtype = stored.front().slice.dtype;
  read_part(
      part, dtype,
      [&](const Slice& target, std::byte* bytes) {
        for (const StoredSlice& slice : stored) {
          const MappedFile map = open(slice.file).map(*slice.entry);
          bytes_read_ +=
              tensor_dtype_bytes(dtype) * copy_common(slice.slice, map.bytes(), target, bytes);
        }
      },
      dst, [&] { return label(part.name); });
}

}  // namespace llmc
