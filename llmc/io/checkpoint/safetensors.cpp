#include "llmc/io/checkpoint/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/element_check.h"

namespace llmc {

namespace {

constexpr std::int64_t kSafetensorsMaxHeader = 100'000'000;  // the format's own limit
constexpr const char* kSafetensorsMetadata = "__metadata__";

}  // namespace

namespace safetensors_detail {

namespace {

// ---- reading -------------------------------------------------------------------------------

// The bytes of a file after its header.
struct DataRange {
  std::int64_t begin, size;
};

TensorEntry parse_tensor(const std::string& name, const Json& json, const DataRange& data,
                         const std::string& file) {
  const std::string what = label(file, name);
  if (!json.is_object()) fail(what + ": its description is not a JSON object");
  const auto member = [&](const char* key) -> const Json& {
    const Json* value = json_member(json, key);
    if (value == nullptr) fail(what + ": its description has no \"" + key + "\"");
    return *value;
  };

  TensorEntry tensor;
  tensor.name = name;
  const std::string dtype_name = json_text(member("dtype"), what + ": dtype");
  const auto dtype = find_tensor_dtype(dtype_name);
  if (!dtype) {
    std::string allowed = "supported:";
    for (const TensorDtypeInfo& info : kTensorDtypes) allowed += " " + std::string(info.name);
    fail(what + ": unknown dtype " + printable(dtype_name), allowed);
  }
  tensor.dtype = *dtype;
  tensor.shape = json_sizes(member("shape"), what + ": shape");
  const auto count = checked_count(tensor.shape);
  const auto bytes = count ? checked_product(*count, tensor_dtype_bytes(*dtype)) : std::nullopt;
  if (!bytes) fail(what + ": shape " + printable(shape_text(tensor.shape)) + " overflows 63 bits");

  const Shape range = json_sizes(member("data_offsets"), what + ": data_offsets");
  if (range.size() != 2) fail(what + ": data_offsets are not two numbers");
  const std::int64_t begin = range[0];
  const std::int64_t end = range[1];
  if (begin > end || end > data.size) {
    fail(what + ": data_offsets " + shape_text(range) + " are outside the file, which holds " +
             std::to_string(data.size) + " bytes of tensors",
         "copy or download the file again: it may be truncated");
  }
  if (end - begin != *bytes) {
    fail(what + ": data_offsets span " + std::to_string(end - begin) + " bytes, but dtype " +
         dtype_name + " and shape " + printable(shape_text(tensor.shape)) + " need " +
         std::to_string(*bytes));
  }
  tensor.begin = data.begin + begin;
  tensor.size = *bytes;
  return tensor;
}

// Throws unless the tensors, in the order of their bytes, cover the data exactly.
void check_cover(const std::vector<TensorEntry>& tensors, const DataRange& data,
                 const std::string& file) {
  std::int64_t at = data.begin;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != at) {
      fail(label(file, tensor.name) + (tensor.begin > at
                                           ? ": a gap before its bytes"
                                           : ": its bytes overlap those of another tensor"));
    }
    at += tensor.size;
  }
  const std::int64_t rest = data.begin + data.size - at;
  if (rest != 0) {
    fail(file + ": " + std::to_string(rest) + " bytes at the end belong to no tensor");
  }
}

}  // namespace

}  // namespace safetensors_detail

namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr const char* kFileHint = "check that this is a safetensors file and that it is complete";

// The length of the header, which is at the start of a file of `size` bytes.
std::int64_t header_length(std::span<const std::byte> start, std::int64_t size,
                           const std::string& file) {
  if (size < kLengthBytes) {
    fail(file + ": too short for a safetensors file (" + std::to_string(size) + " bytes)",
         kFileHint);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  if (length > static_cast<std::uint64_t>(kSafetensorsMaxHeader)) {
    fail(file + ": a header of " + std::to_string(length) +
             " bytes is longer than the format allows",
         kFileHint);
  }
  if (length > static_cast<std::uint64_t>(size - kLengthBytes)) {
    fail(file + ": the header should have " + std::to_string(length) + " bytes, the file has " +
             std::to_string(size - kLengthBytes) + " after the length",
         "copy or download the file again: it may be truncated");
  }
  return static_cast<std::int64_t>(length);
}

// Parses the header `text` of a file of `size` bytes.
SafetensorsContent parse_content(std::string_view text, std::int64_t size,
                                 const std::string& file) {
  const std::int64_t begin = kLengthBytes + std::ssize(text);
  const safetensors_detail::DataRange data{begin, size - begin};
  // The format requires '{' first: no space, no byte-order mark.
  if (!text.starts_with('{')) fail(file + ": the header does not begin with '{'", kFileHint);
  const Json header = parse_json(text, file + ": the header");

  SafetensorsContent content;
  for (const auto& [name, json] : header.items()) {
    if (name != kSafetensorsMetadata) {
      content.tensors.push_back(safetensors_detail::parse_tensor(name, json, data, file));
      continue;
    }
    if (!json.is_object()) fail(file + ": __metadata__ is not a JSON object");
    for (const auto& [key, value] : json.items()) {
      content.metadata[key] = json_text(value, file + ": __metadata__ " + printable(key));
    }
  }
  // Names come sorted from the parser; a stable sort keeps that order among empty tensors.
  std::stable_sort(content.tensors.begin(), content.tensors.end(),
                   [](const auto& a, const auto& b) {
                     return std::pair(a.begin, a.size) < std::pair(b.begin, b.size);
                   });
  safetensors_detail::check_cover(content.tensors, data, file);
  return content;
}

// Parses an open file, of which it reads only the header.
SafetensorsContent read_content(const FileDescriptor& fd, const std::filesystem::path& path) {
  const struct stat status = status_of(fd, path);
  require(S_ISREG(status.st_mode), path.string() + " is not a regular file");
  const std::int64_t size = status.st_size;
  const MappedFile start(fd, path, 0, std::min<std::int64_t>(size, 1 << 12));
  refuse_lfs_pointer({reinterpret_cast<const char*>(start.bytes().data()), start.bytes().size()},
                     path);
  const std::int64_t length = header_length(start.bytes(), size, path.string());
  const MappedFile header(fd, path, kLengthBytes, length);
  const std::span<const std::byte> text = header.bytes();
  return parse_content({reinterpret_cast<const char*>(text.data()), text.size()}, size,
                       path.string());
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  const std::int64_t length = header_length(bytes, std::ssize(bytes), file);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  return parse_content(text, std::ssize(bytes), file);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), fd_(open_for_reading(path)), content_(read_content(fd_, path)) {
  for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
    by_name_.emplace(content_.tensors[i].name, i);
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const TensorEntry& tensor : content_.tensors) names.push_back(tensor.name);
  return names;
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto entry = by_name_.find(name);
  return entry == by_name_.end() ? nullptr : &content_.tensors[entry->second];
}

const TensorEntry& SafetensorsFile::get(const std::string& name, const Shape& shape) const {
  const TensorEntry* tensor = find(name);
  if (tensor == nullptr) fail(path_.string() + " has no tensor " + name);
  if (tensor->shape != shape) {
    fail(path_.string() + ": tensor " + name + " has shape " + shape_text(tensor->shape) +
         ", expected " + shape_text(shape));
  }
  return *tensor;
}

void SafetensorsFile::read_as_float(const TensorEntry& tensor, float* dst) const {
  constexpr std::int64_t kPiece = 1 << 22;  // bytes that are mapped at a time
  const auto for_each_piece = [&](const auto& use) {
    for (std::int64_t first = 0; first < std::max<std::int64_t>(1, tensor.size); first += kPiece) {
      const std::int64_t size = std::min(kPiece, tensor.size - first);
      use(MappedFile(fd_, path_, tensor.begin + first, size).bytes());
    }
  };
  read_float_pieces(tensor.dtype, tensor.shape, for_each_piece, dst,
                    [&] { return safetensors_detail::label(path_.string(), tensor.name); });
}

// ---- writing -------------------------------------------------------------------------------

std::string safetensors_header(const std::vector<TensorHeader>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto add = [&](const std::string& key, const std::string& value) {
    if (text.size() > 1) text += ',';
    text += json_quoted(key) + ':' + value;
  };
  if (!metadata.empty()) add(kSafetensorsMetadata, Json(metadata).dump());
  std::set<std::string> names = {kSafetensorsMetadata};
  std::int64_t at = 0;
  for (const TensorHeader& tensor : tensors) {
    const std::string what = "tensor " + tensor.name;
    require(names.insert(tensor.name).second, what + " is listed twice");
    require(at % tensor_dtype_bytes(tensor.dtype) == 0, what + " would not be aligned",
            "put tensors of wider dtypes first");
    const std::int64_t end = at + tensor_bytes(tensor);
    add(tensor.name, Json{{"data_offsets", {at, end}},
                          {"dtype", tensor_dtype_name(tensor.dtype)},
                          {"shape", tensor.shape}}
                         .dump());
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(static_cast<std::int64_t>(text.size()) <= kSafetensorsMaxHeader,
          "too many tensors for one safetensors file");
  const std::uint64_t length = text.size();
  std::string prefix(sizeof length, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  return prefix + text;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorHeader> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), tensors_(std::move(tensors)) {
  const std::string header = safetensors_header(tensors_, metadata);
  auto total = static_cast<std::int64_t>(header.size());
  for (const TensorHeader& tensor : tensors_) total += tensor_bytes(tensor);
  file_.reserve(total);
  file_.write(header);
  skip_finished();
}

void SafetensorsWriter::write(const std::string& name, const void* data, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::string file = file_.path().string();
  require(current_ < tensors_.size(), file + ": tensor " + name + " is written after the last one");
  const TensorHeader& tensor = tensors_[current_];
  require(tensor.name == name,
          file + ": tensor " + name + " is written, but the next tensor is " + tensor.name);
  require(bytes >= 0 && bytes <= tensor_bytes(tensor) - num_written_,
          file + ": too many bytes for tensor " + name);
  file_.write(std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)));
  num_written_ += bytes;
  skip_finished();
}

void SafetensorsWriter::finish(bool sync_parent) {
  if (current_ != tensors_.size()) {
    fail(file_.path().string() + ": tensor " + tensors_[current_].name + " is not complete");
  }
  file_.commit(sync_parent);
  finished_ = true;
}

void SafetensorsWriter::skip_finished() {
  while (current_ < tensors_.size() && num_written_ == tensor_bytes(tensors_[current_])) {
    ++current_;
    num_written_ = 0;
  }
}

}  // namespace llmc
