#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/base/standard_output.h"
#include "llmc/base/work_progress.h"
#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/infer/classify_command.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/prompt.h"
#include "llmc/io/data/texts.h"
#include "llmc/models/merged_config.h"

namespace llmc {

namespace {

// The texts of a file in tokens.
struct TokenTexts {
  std::string file;
  std::vector<std::vector<std::int32_t>> tokens{};  // each up to the token that is scored
  std::vector<std::int64_t> lines{};
  std::size_t max_length = 1;

  std::string location(std::size_t text) const { return file + ":" + std::to_string(lines[text]); }
};

// Removes what follows the token at which GPT2ForSequenceClassification of transformers reads the
// label: the last one that is not the pad token, or the first one if all are.
void cut_padding(std::vector<std::int32_t>& tokens, std::optional<std::int64_t> pad) {
  if (!pad) return;
  const auto end = std::find_if(tokens.rbegin(), tokens.rend(),
                                [&](std::int32_t token) { return token != *pad; });
  tokens.resize(static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, tokens.rend() - end)));
}

TokenTexts read_tokens(const std::string& file, const ModelFiles& files,
                       std::optional<std::int64_t> pad) {
  TokenTexts texts{.file = file};
  const auto context = static_cast<std::size_t>(files.config.context);
  std::int64_t num_cut = 0;
  for (const NumberedText& text : read_texts(file)) {
    std::vector<std::int32_t> tokens = files.tokenizer->encode(text.text);
    texts.lines.push_back(text.line);
    if (tokens.empty()) fail(texts.location(texts.tokens.size()) + ": the text has no tokens");
    if (tokens.size() > context) ++num_cut;
    tokens.resize(std::min(tokens.size(), context));
    cut_padding(tokens, pad);
    texts.max_length = std::max(texts.max_length, tokens.size());
    texts.tokens.push_back(std::move(tokens));
  }
  if (num_cut > 0) {
    Notice::print(file + ": " + std::to_string(num_cut) +
                  (num_cut == 1 ? " text has" : " texts have") +
                  " more tokens than the context of " + std::to_string(context) +
                  "; only the first " + std::to_string(context) + " of each are read");
  }
  return texts;
}

// Reads the texts, at most shape().slots and shape().chunk tokens per pass, and calls
// on_text(text, logits) for each in order. Only the last text of a pass may be read in part; the
// next pass continues it. Text i uses slot i modulo the number of slots.
void read_texts_in_passes(
    GenerationPass& pass, const TokenTexts& texts,
    const std::function<void(std::size_t text, const std::vector<float>& logits)>& on_text) {
  const auto slots = static_cast<std::size_t>(pass.shape().slots);
  std::size_t first = 0,
              position = 0;  // the first text that is not complete, and its tokens so far
  std::vector<PromptChunk> chunks;
  std::vector<float> logits(static_cast<std::size_t>(pass.config().num_logits()));
  while (first < texts.tokens.size()) {
    chunks.clear();
    auto free = static_cast<std::size_t>(pass.shape().chunk);
    std::size_t text = first;
    for (; text < texts.tokens.size() && text - first < slots && free > 0; ++text) {
      const std::span<const std::int32_t> rest = std::span(texts.tokens[text]).subspan(position);
      const std::size_t count = std::min(rest.size(), free);
      chunks.push_back({.slot = static_cast<std::int64_t>(text % slots),
                        .first_position = static_cast<std::int64_t>(position),
                        .tokens = rest.first(count),
                        .wants_logits = count == rest.size()});
      free -= count;
      position = chunks.back().wants_logits ? 0 : position + count;
    }
    const Tensor<const float, 2> rows = pass.read_prompts(chunks);
    for (std::int64_t row = 0; row < rows.shape[0]; ++row, ++first) {
      copy_to_host(logits.data(), rows.data + row * rows.shape[1], std::ssize(logits),
                   pass.stream());
      pass.stream().synchronize();
      on_text(first, logits);
    }
  }
}

}  // namespace

std::string classification_line(const std::vector<float>& logits,
                                const std::vector<std::string>& label_names) {
  const auto best = static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
  std::vector<double> probabilities;
  double sum = 0;
  for (const float logit : logits) {
    probabilities.push_back(
        std::exp(static_cast<double>(logit) - static_cast<double>(logits[best])));
    sum += probabilities.back();
  }
  std::vector<JsonMember> members;
  for (std::size_t label = 0; label < logits.size(); ++label) {
    members.push_back({label_names[label], probabilities[label] / sum});
  }
  return Json{{"label", label_names[best]},
              {"probabilities", Json::from_members(std::move(members))}}
             .dump() +
         "\n";
}

void classify_texts(const InferConfig& settings) {
  const HuggingFaceConfig config = read_merged_config(settings.model, settings.adapter);
  const ModelFiles files = read_model_files(settings);
  const TokenTexts texts = read_tokens(settings.command.at(1), files, config.pad_token_id);
  const auto count = static_cast<std::int64_t>(texts.tokens.size());
  const auto capacity = static_cast<std::int64_t>(texts.max_length);
  const std::int64_t slots = std::min(settings.batch, count);
  const auto runner = make_decoding_runner(settings, files.config);
  const auto pass = make_pass(
      settings, *runner,
      {.slots = slots, .capacity = capacity, .chunk = std::min(settings.chunk, slots * capacity)});
  load_model(*runner, settings);
  pass->clear();
  ProgressTimer timer;
  read_texts_in_passes(*pass, texts, [&](std::size_t text, const std::vector<float>& logits) {
    if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
      fail(texts.location(text) + ": the model's output is not finite",
           "check whether the weights are damaged or too large for this " + quantity("dtype"));
    }
    print_text(classification_line(logits, config.label_names));
    if (timer.due()) {
      const double fraction = static_cast<double>(text + 1) / static_cast<double>(count);
      ProgressTimer::show(progress_text("classify", fraction, timer.seconds()));
    }
  });
  Notice::print("classified: " + std::to_string(count) + (count == 1 ? " text" : " texts") +
                number_text(" in %.1f s", timer.seconds()));
}

}  // namespace llmc
