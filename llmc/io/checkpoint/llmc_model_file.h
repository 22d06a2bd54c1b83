// llm.c's model files (".bin"): a header of 256 32-bit integers, then all parameters as one array
// of fp32 (version 3) or bf16 (version 5) numbers, little-endian. Eight integers of the header are
// used: a magic number, the version, context T, vocabulary V, layers L, heads NH, channels C, and
// the number of rows Vp to which the token embedding is padded. Each kind of parameter is stored
// once for all layers, layer by layer. Linear layers are stored (out, in): the transpose of
// transformers' Conv1D and of this engine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "llmc/base/file.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

inline constexpr std::int32_t kLlmcModelMagic = 20240326;
inline constexpr std::int32_t kLlmcModelFp32 = 3, kLlmcModelBf16 = 5;  // versions

// Returns whether a path is treated as such a file. The extension decides, except for a directory
// of transformers, which may have any name.
bool is_llmc_model_file(const std::filesystem::path& path);

class LlmcModelFile {
 public:
  // Throws an `Error` that names the file unless it is a model file of the size that its header
  // implies.
  explicit LlmcModelFile(const std::filesystem::path& path);

  // The equivalent of config.json. If the vocabulary has GPT-2's size, its last token is
  // end-of-text; otherwise no token is.
  HuggingFaceConfig config() const;

  // Loads a tensor as float, by transformers' name without prefix and in transformers' layout.
  // `dst` has room for the elements of `shape`, which must be the shape of the tensor in that
  // layout. Throws if an element is not finite; the error has its index in the file's layout.
  void load(const std::string& name, const Shape& shape, float* dst) const;

  // The same for a part of a tensor, whose name and shape it has. `dst` has room for part.count()
  // elements.
  void load_part(const Slice& part, float* dst) const;

  const std::filesystem::path& path() const { return path_; }
  TensorDtype dtype() const { return dtype_; }

 private:
  // A kind of parameter: one tensor, or one for each layer.
  struct Kind {
    Shape shape;                   // in transformers' layout
    std::int64_t padded_rows = 0;  // stored rows, if more than shape[0]
    bool per_layer = false;
    bool transposed = false;
    std::int64_t offset = 0;  // bytes from the start of the file to the first layer's tensor

    std::int64_t stored_size() const;
  };

  std::int64_t width() const { return tensor_dtype_bytes(dtype_); }

  void read_version(std::int32_t magic, std::int32_t version);

  std::int64_t positive_size(const char* what, std::int32_t value) const;

  // Throws if a size exceeds its bound. The bounds keep all products below under 2^63.
  void check_sizes() const;

  // Computes the offset of each kind, in the order of the file.
  void compute_offsets(std::size_t header_bytes);

  // Splits "h.3.ln_1.bias" into (3, "ln_1.bias"); a name outside the layers has layer -1.
  static std::pair<std::int64_t, std::string> split(const std::string& name);

  std::filesystem::path path_;
  MappedFile map_;
  TensorDtype dtype_ = TensorDtype::f32;
  std::int64_t T_ = 0, V_ = 0, L_ = 0, NH_ = 0, C_ = 0, Vp_ = 0;
  std::map<std::string, Kind> kinds_;  // by name without layer
};

}  // namespace llmc
