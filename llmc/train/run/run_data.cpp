#include "llmc/train/run/run_data.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/resolved.h"
#include "llmc/base/terminal.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/source_list.h"
#include "llmc/train/run/eval_tasks.h"

namespace llmc {

void check_documents(const std::vector<TokenSource>& sources, const Tokenizer& tokenizer) {
  for (const TokenSource& source : sources) {
    if (source.has_documents()) return;
  }
  const std::string reason =
      tokenizer.end_of_text() ? "no end-of-text token is in the data"
                              : "the tokenizer " + tokenizer.name() + " has no end-of-text token";
  fail_usage(
      "--document-mask: the data have no document boundaries (" + reason + ")",
      "use documents (.jsonl), tokens with end-of-text between documents (.bin), or Megatron's "
      ".bin/.idx");
}

void cut_windows(RunData& data, RunSources sources, const InputConfig& config, bool training) {
  const std::int64_t T = config.batch.seq_len;
  const bool document_mask = config.data.document_mask;
  if (document_mask) {
    check_documents(training ? sources.train : sources.validation, *data.tokenizer);
  }
  if (training) {
    data.train.emplace(Windows(std::move(sources.train), T, document_mask, "give a longer text"),
                       config.seed, std::move(sources.weights));
  }
  data.validation.emplace(
      Windows(std::move(sources.validation), T, document_mask, "give a longer validation text"));
}

namespace {

SourceOptions source_options(const DataSettings<Resolved>& settings) {
  std::optional<std::string> separator;
  if (!settings.split_on.empty()) separator = settings.split_on;
  return {
      .text = {.kind = settings.text_format,
               .field = settings.text_field,
               .separator = std::move(separator)},
      .bin = settings.bin_format,
      .skip_bad_lines = settings.skip_bad_lines,
      .cache = {.enabled = !settings.no_cache, .directory = settings.cache_dir},
      .advice = {.json_lines = "use --text-format jsonl",
                 .end_of_text = "--split-on '<|endoftext|>' separates documents at such lines"}};
}

}  // namespace

RunData load_run_data(const InputConfig& config, bool training,
                      std::unique_ptr<Tokenizer> tokenizer) {
  const DataSettings<Resolved>& settings = config.data;
  RunData data;
  data.tokenizer = std::move(tokenizer);
  data.tasks = make_eval_tasks(config.evaluation, settings.bin_format, *data.tokenizer,
                               config.batch.seq_len);
  if (settings.train.empty() && settings.val.empty()) return data;
  SourceReader reader(*data.tokenizer, source_options(settings));
  RunSources sources;
  if (!settings.train.empty()) {
    SourceList list = parse_source_list(settings.train, "--train", true);
    sources.train = reader.read(list, "--train");
    sources.weights = std::move(list.weights);
  }
  if (!settings.val.empty()) {
    sources.validation = reader.read(parse_source_list(settings.val, "--val", false), "--val");
  }
  reader.print_notices();
  if (settings.val.empty()) {
    TrainValidationSplit split = split_validation(sources.train, config.batch.seq_len);
    sources.train = std::move(split.train);
    sources.validation = std::move(split.validation);
  }
  cut_windows(data, std::move(sources), config, training);
  return data;
}

std::string training_text(const ShuffledWindows& train) {
  std::string text;
  const std::vector<TokenSource>& sources = train.windows_by_source().sources();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (s > 0) text += ',';
    text += std::filesystem::path(sources[s].name()).filename().string();
    if (!train.weights()) continue;
    char fraction[32];
    const auto end = std::to_chars(fraction, fraction + sizeof fraction,
                                   train.weights()->fraction(static_cast<std::int64_t>(s)));
    text += ':' + std::string(fraction, end.ptr);
  }
  return readable_text(text);  // stored as JSON, which cannot hold other bytes
}

namespace {

void describe_training(const ShuffledWindows& train) {
  const Windows& windows = train.windows_by_source();
  for (std::size_t s = 0; s < windows.sources().size(); ++s) {
    const TokenSource& source = windows.sources()[s];
    const auto index = static_cast<std::int64_t>(s);
    const std::int64_t count = windows.count(index);
    const double fraction = train.weights()
                                ? train.weights()->fraction(index)
                                : static_cast<double>(count) / static_cast<double>(windows.count());
    char percent[32];
    std::snprintf(percent, sizeof percent, "%.4g%%", 100 * fraction);
    std::string text = "data: " + source.name() + ": " + std::to_string(source.size()) + " tokens";
    if (source.files() > 1) text += " in " + std::to_string(source.files()) + " files";
    text += ", " + std::to_string(count) + " windows";
    if (windows.sources().size() > 1) text += std::string(", ") + percent + " of the samples";
    Notice::print(text);
  }
}

// The windows of --val, and the tokens that they leave out.
void describe_validation(const Windows& windows, std::int64_t T) {
  for (std::size_t s = 0; s < windows.sources().size(); ++s) {
    const TokenSource& source = windows.sources()[s];
    const std::int64_t count = windows.count(static_cast<std::int64_t>(s));
    const std::int64_t rest = source.size() - 1 - count * T;
    std::string text = "data: --val " + source.name() + ": " + std::to_string(source.size()) +
                       " tokens, " + std::to_string(count) + " windows";
    if (rest > 0) text += "; the last " + std::to_string(rest) + " tokens fill no window";
    Notice::print(text);
  }
}

}  // namespace

void describe_data(const RunData& data, const InputConfig& config) {
  if (data.train) describe_training(*data.train);
  if (data.validation && !config.data.val.empty()) {
    describe_validation(data.validation->windows_by_source(), config.batch.seq_len);
  }
}

}  // namespace llmc
