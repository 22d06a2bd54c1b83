#include "llmc/train/run/run_data.h"

#include <cstdint>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/resolved.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/io/data/data_sources.h"
#include "llmc/io/data/source_list.h"
#include "llmc/train/run/conversation_data.h"
#include "llmc/train/run/eval_tasks.h"
#include "llmc/train/run/labelled_data.h"
#include "llmc/train/run/window_samples.h"

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
    data.train = std::make_unique<TrainingWindows>(
        ShuffledWindows(Windows(std::move(sources.train), T, document_mask, "give a longer text"),
                        config.seed, std::move(sources.weights)));
  }
  data.validation = std::make_unique<ValidationWindows>(
      ConsecutiveWindows(Windows(std::move(sources.validation), T, document_mask,
                                 "give a longer validation text")),
      T);
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
                      std::unique_ptr<Tokenizer> tokenizer,
                      const std::vector<std::string>& known_labels) {
  const DataSettings<Resolved>& settings = config.data;
  RunData data;
  data.tokenizer = std::move(tokenizer);
  data.tasks = make_eval_tasks(config.evaluation, settings.bin_format, *data.tokenizer,
                               config.batch.seq_len);
  if (config.task.kind == Task::classify) {
    load_labelled_data(data, config, training, known_labels);
    return data;
  }
  if (settings.train.empty() && settings.val.empty()) return data;
  if (config.task.kind == Task::chat) {
    load_conversation_data(data, config, training);
    return data;
  }
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

void describe_data(const RunData& data, const InputConfig& config) {
  if (data.train) data.train->describe();
  const bool is_reserved = config.task.kind == Task::lm && config.data.val.empty();
  if (data.validation && !is_reserved) data.validation->describe();
  if (data.test) data.test->describe();
}

}  // namespace llmc
