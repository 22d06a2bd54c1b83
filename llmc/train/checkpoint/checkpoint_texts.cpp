#include "llmc/train/checkpoint/checkpoint_texts.h"

#include <filesystem>
#include <string>

#include "llmc/base/resolved.h"
#include "llmc/config/card_text.h"
#include "llmc/config/choices.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/tokenizer/tokenizer_files.h"

namespace llmc {

namespace {

// Text about quantization-aware training for the row of the arithmetic; empty if there was none.
std::string qat_text(const QatSettings<Resolved>& qat) {
  if (qat.mode == QatMode::none) return {};
  const bool activations = qat.mode == QatMode::w8a8;
  std::string text = std::string("; quantization-aware training (") + choice_name(qat.mode) +
                     "): forward passes with INT8 weights";
  if (activations) text += " and activations";
  if (activations && qat.zero_points == ZeroPoints::off) text += " without zero points";
  return text + " from step " + std::to_string(qat.start) + " on";
}

}  // namespace

ModelCard make_model_card(const RunConfig& run, const HuggingFaceConfig& config,
                          std::int64_t parameters, const RunPosition& position,
                          std::optional<double> train_loss) {
  const auto file_name = [](std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return std::filesystem::path(path).filename().string();
  };
  const auto source_names = [&](const std::string& sources) {
    std::string names;
    for (const std::string& path : parse_source_list(sources, "--val", false).names) {
      names += (names.empty() ? "" : ",") + file_name(path);
    }
    return names;
  };
  ModelCard card;
  card.name = checkpoint_name(position.step);
  card.config = config;
  card.parameters = parameters;
  const bool is_toy = run.data.train.empty() && run.task.classes.empty();
  card.tokenizer = is_toy ? "words of the toy language" : file_name(run.data.tokenizer);
  card.initial_weights = file_name(run.model.init_from);
  card.train = position.train;
  card.validation = "the end of " + position.train;
  if (!run.task.split.empty()) card.validation = "a part of " + position.train;
  if (!run.data.val.empty()) card.validation = source_names(run.data.val);
  if (is_toy) card.validation = "the toy language with another seed";
  card.step = position.step;
  card.tokens = position.tokens;
  card.tokens_per_step = run.tokens_per_step();
  card.arithmetic =
      choice_name(run.precision.dtype) +
      std::string(run.precision.dtype == Dtype::fp32 ? "" : ", with fp32 master weights and sums") +
      qat_text(run.qat);
  card.optimizer = optimizer_text(run);
  if (train_loss) card.train_loss = {position.step, *train_loss};
  card.validation_loss = position.validation;
  card.best_loss = position.best;
  card.history = position.history;
  return card;
}

std::vector<TextFile> checkpoint_texts(ModelCard card, const Tokenizer& tokenizer) {
  std::vector<TextFile> texts = tokenizer.files();
  card.tokenizer_files = !texts.empty();
  if (card.config.label_names.empty()) {
    texts.push_back({kGenerationConfigName, generation_config_text(card.config)});
  } else {
    for (TextFile& text : texts) text.text = with_pad_token(text);
  }
  texts.push_back({kModelCardName, model_card_text(card)});
  return texts;
}

void add_adapter_texts(std::vector<TextFile>& texts, const AdapterConfig& adapter,
                       std::int64_t num_blocks, const std::string& name) {
  for (TextFile& text : texts) {
    if (text.name == kModelCardName) text.text = adapter_card_text(adapter, name);
  }
  texts.push_back({kAdapterConfigName, adapter_config_text(adapter, num_blocks)});
  if (!adapter.base_hash.empty()) texts.push_back({kAdapterBaseName, adapter_base_text(adapter)});
}

}  // namespace llmc
