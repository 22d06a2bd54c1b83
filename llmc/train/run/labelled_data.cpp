#include "llmc/train/run/labelled_data.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/io/data/labelled_texts.h"
#include "llmc/io/data/padded_batches.h"
#include "llmc/train/run/padded_samples.h"

namespace llmc {

TokenSequence labelled_sequence(std::vector<std::int32_t> tokens, std::int32_t label,
                                std::int32_t pad_token, std::int64_t T) {
  if (std::ssize(tokens) > T) tokens.resize(static_cast<std::size_t>(T));
  TokenSequence sequence{std::move(tokens), {}};
  sequence.targets.assign(sequence.tokens.size(), -1);
  std::size_t last = sequence.tokens.size() - 1;
  while (last > 0 && sequence.tokens[last] == pad_token) --last;
  sequence.targets[last] = label;
  return sequence;
}

namespace {

std::string counts_text(const LabelledTexts& texts) {
  std::vector<std::int64_t> counts(texts.label_names.size());
  for (const std::int32_t label : texts.labels) ++counts[static_cast<std::size_t>(label)];
  constexpr std::size_t kMaxListed = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxListed, counts.size()); ++i) {
    text += ", " + std::to_string(counts[i]) + " " + printable(texts.label_names[i]);
  }
  return text + (counts.size() > kMaxListed ? ", ..." : "");
}

// Tokenizes texts and makes them sequences with one target each.
class SequenceMaker {
 public:
  SequenceMaker(const Tokenizer& tokenizer, std::int64_t T)
      : tokenizer_(tokenizer), padding_{.T = T, .pad_token = pad_token_of(tokenizer)} {}

  const PaddingOptions& padding() const { return padding_; }

  SampleSequences sequences(const LabelledTexts& texts) {
    SampleSequences result{
        .name = texts.source, .what = "texts", .detail = counts_text(texts), .sequences = {}};
    for (std::size_t i = 0; i < texts.texts.size(); ++i) {
      std::vector<std::int32_t> tokens = tokenizer_.encode(texts.texts[i]);
      if (std::ssize(tokens) > padding_.T) ++num_cut_;
      result.sequences.push_back(
          labelled_sequence(std::move(tokens), texts.labels[i], padding_.pad_token, padding_.T));
    }
    return result;
  }

  void report_cut() const {
    if (num_cut_ == 0) return;
    Notice::print("data: " + std::to_string(num_cut_) +
                  (num_cut_ == 1 ? " text has" : " texts have") + " more than --seq-len " +
                  std::to_string(padding_.T) + " tokens and lose their end");
  }

 private:
  static std::int32_t pad_token_of(const Tokenizer& tokenizer) {
    if (const auto token = tokenizer.end_of_text()) return *token;
    fail("the tokenizer " + tokenizer.name() + " has no end-of-text token to pad texts with",
         "give a --tokenizer that has one");
  }

  const Tokenizer& tokenizer_;
  PaddingOptions padding_;
  std::int64_t num_cut_ = 0;
};

LabelledSplit read_parts(const InputConfig& config, const std::vector<std::string>& known_labels) {
  const bool has_list = !config.task.classes.empty();
  const std::string& source = has_list ? config.task.classes : config.data.train;
  LabelledSplit parts;
  std::vector<std::string> names = known_labels;
  if (!source.empty()) {
    LabelledTexts all = read_labelled_texts(source, has_list ? "--classes" : "--train", names);
    if (!config.task.split.empty()) {
      return split_labelled_texts(all, parse_split_fractions(config.task.split, "--split"));
    }
    names = all.label_names;
    parts.train = std::move(all);
  }
  if (!config.data.val.empty()) {
    parts.validation = read_labelled_texts(config.data.val, "--val", names);
    names = parts.validation.label_names;
  }
  if (!config.task.test.empty()) {
    parts.test = read_labelled_texts(config.task.test, "--test", names);
  }
  return parts;
}

}  // namespace

void load_labelled_data(RunData& data, const InputConfig& config, bool training,
                        const std::vector<std::string>& known_labels) {
  LabelledSplit parts = read_parts(config, known_labels);
  for (const LabelledTexts* part : {&parts.train, &parts.validation, &parts.test}) {
    if (data.label_names.empty()) data.label_names = part->label_names;
  }
  SequenceMaker maker(*data.tokenizer, config.batch.seq_len);
  SampleParts samples;
  if (training) samples.train = maker.sequences(parts.train);
  samples.validation = maker.sequences(parts.validation);
  samples.test = maker.sequences(parts.test);
  add_padded_samples(data, std::move(samples), maker.padding(), config);
  maker.report_cut();
}

}  // namespace llmc
