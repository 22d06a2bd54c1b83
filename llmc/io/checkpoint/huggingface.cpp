#include "llmc/io/checkpoint/huggingface.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/shell_word.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/read_part.h"

namespace llmc {

std::string huggingface_name(const std::string& name) {
  const bool is_head = name.starts_with("lm_head.") || name.starts_with("score.");
  return is_head ? name : "transformer." + name;
}

StoredHead stored_head(const HuggingFaceConfig& config) {
  if (!config.label_names.empty()) return StoredHead::score;
  return config.tie_word_embeddings ? StoredHead::tied : StoredHead::own;
}

std::vector<TensorHeader> huggingface_tensors(std::vector<TensorHeader> tensors) {
  for (TensorHeader& tensor : tensors) tensor.name = huggingface_name(tensor.name);
  return tensors;
}

void require_safetensors(const std::filesystem::path& directory) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(directory / name, ignored);
  };
  if (has(kWeightsName) || has(kWeightsIndexName)) return;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!has(name)) continue;
    // The folder is an argument of the program, so that its name needs no quoting of Python.
    const std::string program =
        "import sys; from transformers import AutoModelForCausalLM as M; "
        "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])";
    fail(directory.string() + " has its weights only in PyTorch's format, " + name,
         "convert them: python3 -c " + shell_word(program) + " " + shell_word(directory.string()));
  }
  fail(directory.string() + " has no " + std::string(kWeightsName),
       "save the model with save_pretrained of transformers");
}

HuggingFaceWeights::HuggingFaceWeights(const std::filesystem::path& directory, StoredHead head)
    : directory_(directory) {
  require_safetensors(directory);
  std::error_code error;
  if (std::filesystem::exists(directory / kWeightsName, error)) {
    files_.emplace_back(directory / kWeightsName);
    for (const std::string& name : files_.back().names()) add(name, 0, head);
  } else {
    open_shards(head);
  }
  report_ignored();
  if (head == StoredHead::tied) tie_head();
}

void HuggingFaceWeights::report_ignored() const {
  if (ignored_.empty()) return;
  Notice::warn("warning: " + directory_.string() +
               ": tensors of other heads are ignored: " + list(ignored_));
}

std::vector<std::string> HuggingFaceWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, location] : locations_) names.push_back(name);
  return names;
}

void HuggingFaceWeights::require_exactly(const std::vector<std::string>& expected) const {
  const std::set<std::string> expected_set(expected.begin(), expected.end());
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const std::string& name : expected_set) {
    if (!locations_.contains(name)) missing.push_back(name);
  }
  for (const auto& [name, location] : locations_) {
    if (!expected_set.contains(name)) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return;
  std::string what = directory_.string() + ":";
  if (!missing.empty()) what += " missing " + list(missing);
  if (!unexpected.empty())
    what += (missing.empty() ? "" : ";") + (" unexpected " + list(unexpected));
  fail(what, "check that config.json and the weights belong to the same model");
}

std::string HuggingFaceWeights::list(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNames = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxNames, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() > kMaxNames) {
    text += " and " + std::to_string(names.size() - kMaxNames) + " more";
  }
  return text;
}

bool HuggingFaceWeights::is_mask(const std::string& name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

bool HuggingFaceWeights::is_of_other_head(const std::string& name, StoredHead head) {
  const char* own = head == StoredHead::score ? "score." : "lm_head.";
  return std::ranges::none_of(std::array{"h.", "wte.", "wpe.", "ln_f.", own},
                              [&](const char* beginning) { return name.starts_with(beginning); });
}

std::string HuggingFaceWeights::plain_name(std::string stored_name) {
  constexpr std::string_view kCompiled = "_orig_mod.";
  for (std::size_t at = 0; (at = stored_name.find(kCompiled, at)) != std::string::npos;) {
    stored_name.erase(at, kCompiled.size());
  }
  for (const std::string_view prefix : {"module.", "transformer."}) {
    if (stored_name.starts_with(prefix)) stored_name.erase(0, prefix.size());
  }
  return stored_name;
}

void HuggingFaceWeights::add(const std::string& stored_name, std::size_t file, StoredHead head) {
  const std::string name = plain_name(stored_name);
  if (is_mask(name)) return;
  if (is_of_other_head(name, head)) return ignored_.push_back(stored_name);
  const auto [at, is_new] = locations_.emplace(name, TensorLocation{file, stored_name});
  if (is_new) return;
  fail(files_[file].path().string() + ": tensor " + printable(name) + " is stored twice, as " +
       printable(at->second.stored_name) + " and as " + printable(stored_name));
}

void HuggingFaceWeights::open_shards(StoredHead head) {
  const std::string file = (directory_ / kWeightsIndexName).string();
  const Json index = parse_json(read_file(file), file);
  const Json* map = index.is_object() ? json_member(index, "weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) fail(file + " has no weight_map");
  std::map<std::string, std::size_t> file_indices;
  for (const auto& [name, value] : map->items()) {
    const std::string shard = json_text(value, file + ": the file of " + printable(name));
    if (!is_plain_file_name(shard)) fail(file + ": invalid file name " + printable(shard));
    const auto [at, is_new] = file_indices.emplace(shard, files_.size());
    if (is_new) files_.emplace_back(directory_ / shard);
    if (files_[at->second].find(name) == nullptr) {
      fail(files_[at->second].path().string() + " has no tensor " + printable(name) +
           ", although the index lists it there");
    }
    add(name, at->second, head);
  }
}

const HuggingFaceWeights::TensorLocation& HuggingFaceWeights::location(
    const std::string& name) const {
  const auto location = locations_.find(name);
  if (location == locations_.end()) fail(directory_.string() + " has no tensor " + name);
  return location->second;
}

void HuggingFaceWeights::load_part(const Slice& part, float* dst) const {
  const TensorEntry& tensor = get(part.name, part.shape);
  Slice whole = Slice::whole(tensor);
  whole.name = part.name;
  read_part(
      part, tensor.dtype,
      [&](const Slice& target, std::byte* bytes) {
        copy_common(whole, file_of(part.name).map(tensor).bytes(), target, bytes);
      },
      dst, [&] { return label(part.name); });
}

void HuggingFaceWeights::tie_head() {
  constexpr const char* kHead = "lm_head.weight";
  constexpr const char* kEmbedding = "wte.weight";
  const auto head = locations_.find(kHead);
  if (head == locations_.end()) return;
  // safetensors stores tensors that share memory under only one of their names.
  locations_.emplace(kEmbedding, head->second);
  const TensorEntry& logits = entry(kHead);
  const TensorEntry& embedding = entry(kEmbedding);
  const MappedFile logits_map = file_of(kHead).map(logits);
  const MappedFile embedding_map = file_of(kEmbedding).map(embedding);
  const bool is_equal = logits.dtype == embedding.dtype && logits.shape == embedding.shape &&
                        std::ranges::equal(logits_map.bytes(), embedding_map.bytes());
  if (!is_equal) {
    fail(directory_.string() + ": lm_head.weight differs from transformer.wte.weight",
         "if the head has weights of its own, config.json needs \"tie_word_embeddings\": false");
  }
  locations_.erase(kHead);
}

void write_huggingface(const std::filesystem::path& directory, const HuggingFaceConfig& config,
                       const std::vector<TensorHeader>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of) {
  make_directory(directory);
  SafetensorsWriter writer(directory / kWeightsName, huggingface_tensors(tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(i);
    require(static_cast<std::int64_t>(bytes.size()) == tensor_bytes(tensors[i]),
            "tensor " + tensors[i].name + ": wrong number of bytes");
    writer.write(writer.tensors()[i].name, bytes);
  }
  const TensorDtype dtype = tensors.empty() ? TensorDtype::f32 : tensors.front().dtype;
  write_file(directory / kConfigName, huggingface_config_text(config, dtype));
  writer.finish();
}

}  // namespace llmc
