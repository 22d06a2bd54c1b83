#include "llmc/io/checkpoint/llmc_model_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/safetensors.h"

namespace llmc {

bool is_llmc_model_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".bin" && !std::filesystem::is_directory(path, ignored);
}

LlmcModelFile::LlmcModelFile(const std::filesystem::path& path) : path_(path), map_(path) {
  std::array<std::int32_t, 256> header{};
  if (map_.bytes().size() < sizeof header) {
    fail(path_.string() + " is too short for a model file of llm.c (" +
         std::to_string(map_.bytes().size()) + " bytes)");
  }
  std::memcpy(header.data(), map_.bytes().data(), sizeof header);
  read_version(header[0], header[1]);
  T_ = positive_size("context", header[2]);
  V_ = positive_size("vocabulary", header[3]);
  L_ = positive_size("layers", header[4]);
  NH_ = positive_size("heads", header[5]);
  C_ = positive_size("channels", header[6]);
  Vp_ = positive_size("padded vocabulary", header[7]);
  check_sizes();
  compute_offsets(sizeof header);
}

HuggingFaceConfig LlmcModelFile::config() const {
  HuggingFaceConfig config;
  config.vocab_size = V_;
  config.n_positions = T_;
  config.n_layer = L_;
  config.n_head = NH_;
  config.n_embd = C_;
  if (V_ == 50257) return config;
  config.bos_token_id.reset();
  config.eos_token_ids.clear();
  return config;
}

void LlmcModelFile::load(const std::string& name, const Shape& shape, float* dst) const {
  const auto [layer, kind] = split(name);
  const auto entry = kinds_.find(kind);
  if (entry == kinds_.end() || layer >= L_ || (layer < 0) == entry->second.per_layer) {
    fail(path_.string() + " has no tensor " + name);
  }
  const Kind& k = entry->second;
  if (shape != k.shape) {
    fail(path_.string() + ": tensor " + name + " has shape " + shape_text(k.shape) + ", expected " +
         shape_text(shape));
  }
  const std::int64_t size = k.stored_size();
  const std::int64_t begin = k.offset + std::max<std::int64_t>(layer, 0) * size * width();
  const auto bytes = map_.bytes().subspan(
      static_cast<std::size_t>(begin), static_cast<std::size_t>(*checked_count(k.shape) * width()));
  const auto label = [&] { return path_.string() + ": tensor " + name; };
  if (!k.transposed) return read_floats(dtype_, shape, bytes, dst, label);
  std::vector<float> stored(static_cast<std::size_t>(size));  // (out, in)
  read_floats(dtype_, {shape[1], shape[0]}, bytes, stored.data(), label);
  const auto in = static_cast<std::size_t>(shape[0]), out = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i < in; ++i) {
    for (std::size_t o = 0; o < out; ++o) dst[i * out + o] = stored[o * in + i];
  }
}

void LlmcModelFile::load_part(const Slice& part, float* dst) const {
  // The file is transposed, so that the elements of a part are rarely neighbours in it.
  std::vector<float> whole(static_cast<std::size_t>(*checked_count(part.shape)));
  load(part.name, part.shape, whole.data());
  const TensorHeader tensor = {part.name, TensorDtype::f32, part.shape};
  copy_common(Slice::whole(tensor), std::as_bytes(std::span(whole)), part,
              reinterpret_cast<std::byte*>(dst));
}

std::int64_t LlmcModelFile::Kind::stored_size() const {
  const std::int64_t columns = shape.size() > 1 ? shape[1] : 1;
  return std::max(padded_rows, shape[0]) * columns;
}

void LlmcModelFile::read_version(std::int32_t magic, std::int32_t version) {
  if (magic != kLlmcModelMagic) {
    fail(path_.string() + " is not a model file of llm.c: it begins with " + std::to_string(magic) +
             ", not " + std::to_string(kLlmcModelMagic),
         "give a file such as gpt2_124M.bin; other .bin files are tokens or PyTorch weights");
  }
  if (version != kLlmcModelFp32 && version != kLlmcModelBf16) {
    fail(path_.string() + " is a model file of version " + std::to_string(version),
         "supported versions: 3 (fp32) and 5 (bf16)");
  }
  dtype_ = version == kLlmcModelFp32 ? TensorDtype::f32 : TensorDtype::bf16;
}

std::int64_t LlmcModelFile::positive_size(const char* what, std::int32_t value) const {
  if (value < 1) fail(path_.string() + ": " + what + " of " + std::to_string(value));
  return value;
}

void LlmcModelFile::check_sizes() const {
  const auto check_max = [&](const char* what, std::int64_t value, std::int64_t max) {
    if (value <= max) return;
    fail(path_.string() + ": " + what + " of " + std::to_string(value),
         "allowed: at most " + std::to_string(max));
  };
  check_max("layers", L_, 1000);
  check_max("channels", C_, 1 << 16);
  if (Vp_ < V_) {
    fail(path_.string() + ": a vocabulary of " + std::to_string(V_) + " is padded to " +
         std::to_string(Vp_));
  }
  if (C_ % NH_ != 0) {
    fail(path_.string() + ": " + std::to_string(C_) + " channels are not a multiple of " +
         std::to_string(NH_) + " heads");
  }
}

void LlmcModelFile::compute_offsets(std::size_t header_bytes) {
  auto at = static_cast<std::int64_t>(header_bytes);
  const auto add = [&](const char* name, Kind kind) {
    kind.offset = at;
    at += kind.stored_size() * (kind.per_layer ? L_ : 1) * width();
    kinds_.emplace(name, std::move(kind));
  };
  const auto vector = [&](const char* name, std::int64_t size) {
    add(name, {.shape = {size}, .per_layer = true});
  };
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
    add(name, {.shape = {in, out}, .per_layer = true, .transposed = true});
  };
  add("wte.weight", {.shape = {V_, C_}, .padded_rows = Vp_});
  add("wpe.weight", {.shape = {T_, C_}});
  vector("ln_1.weight", C_);
  vector("ln_1.bias", C_);
  linear("attn.c_attn.weight", C_, 3 * C_);
  vector("attn.c_attn.bias", 3 * C_);
  linear("attn.c_proj.weight", C_, C_);
  vector("attn.c_proj.bias", C_);
  vector("ln_2.weight", C_);
  vector("ln_2.bias", C_);
  linear("mlp.c_fc.weight", C_, 4 * C_);
  vector("mlp.c_fc.bias", 4 * C_);
  linear("mlp.c_proj.weight", 4 * C_, C_);
  vector("mlp.c_proj.bias", C_);
  add("ln_f.weight", {.shape = {C_}});
  add("ln_f.bias", {.shape = {C_}});
  const auto bytes = static_cast<std::int64_t>(map_.bytes().size());
  if (bytes != at) {
    fail(path_.string() + " has " + std::to_string(bytes) + " bytes, but its header requires " +
             std::to_string(at),
         "copy or download the file again: it may be truncated");
  }
}

std::pair<std::int64_t, std::string> LlmcModelFile::split(const std::string& name) {
  const std::size_t dot = name.find('.', 2);
  if (!name.starts_with("h.") || dot == name.npos || dot > 8) return {-1, name};
  const std::string digits = name.substr(2, dot - 2);
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return {-1, name};
  return {std::stoll(digits), name.substr(dot + 1)};
}

}  // namespace llmc
