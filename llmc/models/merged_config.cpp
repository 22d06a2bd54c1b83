#include "llmc/models/merged_config.h"

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/models/pretrained.h"

namespace llmc {

namespace {

// The end-of-text token of a language model, or of its tokenizer; nothing if neither has one.
std::optional<std::int64_t> end_of_text(const std::filesystem::path& model,
                                        const HuggingFaceConfig& config) {
  const std::vector<std::int32_t> ends = read_end_tokens(model, config, config.vocab_size);
  if (!ends.empty()) return ends.front();
  if (!has_tokenizer_files(model.string())) return std::nullopt;
  const std::optional<std::int32_t> end = make_tokenizer(model.string())->end_of_text();
  return end && *end < config.vocab_size ? std::optional<std::int64_t>(*end) : std::nullopt;
}

// The config.json next to an adapter, as training writes it; nothing if there is none, or if it is
// not that of a classifier with this number of labels.
std::optional<HuggingFaceConfig> own_config(const std::filesystem::path& adapter,
                                            std::int64_t labels) {
  std::error_code ignored;
  if (!std::filesystem::exists(adapter / kConfigName, ignored)) return std::nullopt;
  HuggingFaceConfig config = read_huggingface_config(adapter);
  if (std::ssize(config.label_names) != labels) return std::nullopt;
  return config;
}

}  // namespace

HuggingFaceConfig read_merged_config(const std::filesystem::path& base,
                                     const std::filesystem::path& adapter) {
  HuggingFaceConfig config = read_pretrained_config(base);
  if (adapter.empty()) return config;
  const std::int64_t labels = AdapterFiles(adapter, config).config().labels;
  const std::int64_t base_labels = std::ssize(config.label_names);
  if (labels == 0) return config;
  if (base_labels > 0 && base_labels != labels) {
    fail("the adapter " + adapter.string() + " has a classifier with " + std::to_string(labels) +
             " labels, its base model " + base.string() + " has " + std::to_string(base_labels),
         "give the base model of the adapter");
  }
  const std::optional<HuggingFaceConfig> own = own_config(adapter, labels);
  if (own) config.label_names = own->label_names;
  if (config.label_names.empty()) config.label_names = default_label_names(labels);
  if (own && own->pad_token_id) config.pad_token_id = own->pad_token_id;
  if (!config.pad_token_id) config.pad_token_id = end_of_text(base, config);
  return config;
}

}  // namespace llmc
