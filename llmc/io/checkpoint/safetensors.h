// safetensors, the file format of Hugging Face weights. It begins with 8 bytes with the length N of
// a header (little-endian). N bytes of JSON follow, with each tensor's name, dtype, shape and byte
// range. Then come the tensors, row-major, without gaps (https://huggingface.co/docs/safetensors).
// The reader maps one tensor at a time and trusts nothing in the file; the writer streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

// A tensor in a file, of which it has the bytes [begin, begin + size).
struct TensorEntry : TensorHeader {
  std::int64_t begin = 0, size = 0;

  // These bytes of a whole file.
  std::span<const std::byte> in(std::span<const std::byte> file) const {
    return file.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  }
};

struct SafetensorsContent {
  std::vector<TensorEntry> tensors;             // in the order of their bytes
  std::map<std::string, std::string> metadata;  // free text, such as {"format": "pt"}
};

namespace safetensors_detail {

// ---- reading -------------------------------------------------------------------------------

// "weights.safetensors: tensor wte.weight"
inline std::string label(const std::string& file, const std::string& tensor) {
  return file + ": tensor " + printable(tensor);
}

}  // namespace safetensors_detail

// Parses a whole file. Errors call it `file`. Throws unless the file is valid.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

// An open file. Movable; entries stay valid as long as it exists. Only the tensor that is read is
// mapped, so a file may be larger than the address space that is left.
class SafetensorsFile {
 public:
  // Throws an `Error` that names the file and, if a tensor is at fault, the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return content_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }

  std::vector<std::string> names() const;

  // Returns null if there is no such tensor.
  const TensorEntry* find(const std::string& name) const;

  // Throws if there is no such tensor or it has another shape.
  const TensorEntry& get(const std::string& name, const Shape& shape) const;

  // Maps the bytes of a tensor, whose address may be unaligned.
  MappedFile map(const TensorEntry& tensor) const {
    return {fd_, path_, tensor.begin, tensor.size};
  }

  // Converts an F32, BF16, F16 or F64 tensor to float; throws for other dtypes, and if an element
  // is not finite. `dst` has room for the elements of the tensor.
  void read_as_float(const TensorEntry& tensor, float* dst) const;
  void read_as_float(const std::string& name, const Shape& shape, float* dst) const {
    read_as_float(get(name, shape), dst);
  }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  SafetensorsContent content_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

// ---- writing -------------------------------------------------------------------------------

// Returns the header for these tensors in this order, including its length, padded with spaces so
// that the data begins at a multiple of 8. Throws if a name occurs twice. Also throws if a tensor
// would not begin at a multiple of its element size (readers may map it): put wider dtypes first.
std::string safetensors_header(const std::vector<TensorHeader>& tensors,
                               const std::map<std::string, std::string>& metadata);

// Writes a file tensor by tensor, in the order of the list given to the constructor. Each tensor is
// written whole or in pieces: only the current piece must be in memory. The file appears under its
// name at `finish`; a writer that is destroyed before that removes its output.
class SafetensorsWriter {
 public:
  // Reserves the disk space of the whole file, so that a full disk is an error here.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorHeader> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::vector<TensorHeader>& tensors() const { return tensors_; }

  // Writes the next `bytes` bytes of tensor `name` from host memory. Throws if another tensor must
  // come next, or if `bytes` exceeds the rest of the tensor.
  void write(const std::string& name, const void* data, std::int64_t bytes);
  void write(const std::string& name, std::span<const std::byte> bytes) {
    write(name, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }

  // Throws if a tensor is not complete. `sync_parent`: see AtomicFile::commit.
  void finish(bool sync_parent = true);

  bool finished() const { return finished_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t size() const { return file_.size(); }           // bytes written so far
  std::uint64_t checksum() const { return file_.checksum(); }  // checksum of the bytes so far

 private:
  // Skips complete tensors; those without elements need no write.
  void skip_finished();

  AtomicFile file_;
  std::vector<TensorHeader> tensors_;
  std::size_t current_ = 0;       // index of the tensor to write
  std::int64_t num_written_ = 0;  // bytes of this tensor so far
  bool finished_ = false;
};

}  // namespace llmc
