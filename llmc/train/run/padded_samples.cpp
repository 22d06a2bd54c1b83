#include "llmc/train/run/padded_samples.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/terminal.h"

namespace llmc {

namespace {

// The list of the source without directories: "negative=a.txt,positive=b.txt".
std::string names_of_files(const std::string& source) {
  std::string text, item;
  std::istringstream items(source);
  while (std::getline(items, item, ',')) {
    const std::size_t label = item.find('=') == item.npos ? 0 : item.find('=') + 1;
    text += (text.empty() ? "" : ",") + item.substr(0, label) +
            std::filesystem::path(item.substr(label)).filename().string();
  }
  return text;
}

DataRecord record_of(const SampleSequences& source) {
  DataRecord record;
  ContentChecksum sum;
  for (const TokenSequence& sequence : source.sequences) {
    record.tokens += std::ssize(sequence.tokens);
    const std::vector<std::int64_t> size = {std::ssize(sequence.tokens)};
    sum.add(std::as_bytes(std::span(size)));
    sum.add(std::as_bytes(std::span(sequence.tokens)));
    sum.add(std::as_bytes(std::span(sequence.targets)));
  }
  record.text = readable_text(names_of_files(source.name));
  record.hashes = {{source.name}, sum.text()};
  return record;
}

// The sequences of one part, and the facts about them. `Samples` is TrainingSamples or
// EvaluationSamples.
template <typename Samples>
class PaddedSamples : public Samples {
 public:
  PaddedSamples(SampleSequences samples, const std::string& part, const PaddingOptions& padding)
      : record_(record_of(samples)),
        description_("data: " + samples.name + part + ": " +
                     std::to_string(samples.sequences.size()) + " " + samples.what +
                     samples.detail + ", " + std::to_string(record_.tokens) + " tokens"),
        sequences_(std::move(samples.sequences), padding, samples.name + part) {}

  std::int64_t count() const override { return sequences_.count(); }
  DataRecord record() const override { return record_; }
  void describe() const override { Notice::print(description_); }

  NamedValues compared_values(const std::string& flag) const override {
    const std::string name = " of " + flag + " " + record_.hashes.names.front();
    return {{"the number of tokens" + name, std::to_string(record_.tokens)},
            {"the checksum of the tokens" + name, record_.hashes.hashes}};
  }

 protected:
  const PaddedSequences& sequences() const { return sequences_; }

 private:
  DataRecord record_;
  std::string description_;
  PaddedSequences sequences_;
};

class PaddedTraining final : public PaddedSamples<TrainingSamples> {
 public:
  PaddedTraining(SampleSequences samples, const std::string& part, const PaddingOptions& padding,
                 std::uint64_t seed)
      : PaddedSamples(std::move(samples), part, padding), seed_(seed) {}

  void begin(std::int64_t global_batch, std::int64_t first) override {
    if (first % global_batch != 0) {
      fail_usage("the run has used " + std::to_string(first) +
                     " samples, which are not a whole number of steps of " +
                     std::to_string(global_batch) + " samples",
                 "resume with the --batch-size, the --grad-accum and the ranks of the run");
    }
    shuffled_.emplace(sequences(), global_batch, seed_);
  }

  Batch batch(std::int64_t first, std::int64_t B) const override {
    require(shuffled_.has_value(), "training samples are used before begin()");
    return shuffled_->batch(first, B).batch;
  }

  bool masks_targets() const override { return true; }

 private:
  std::uint64_t seed_;
  std::optional<ShuffledSequences> shuffled_;
};

class PaddedEvaluation final : public PaddedSamples<EvaluationSamples> {
 public:
  PaddedEvaluation(SampleSequences samples, const std::string& part, const PaddingOptions& padding)
      : PaddedSamples(std::move(samples), part, padding), sorted_(sequences()) {}

  Batch batch(std::int64_t first, std::int64_t B) const override {
    return sorted_.batch(first, B).batch;
  }

 private:
  SortedSequences sorted_;
};

}  // namespace

void add_padded_samples(RunData& data, SampleParts parts, const PaddingOptions& padding,
                        const InputConfig& config) {
  const bool is_split = !config.task.split.empty();
  const auto name = [&](const char* part) { return is_split ? part : ""; };
  const auto evaluation = [&](SampleSequences& samples, const char* part) {
    return samples.sequences.empty()
               ? nullptr
               : std::make_unique<PaddedEvaluation>(std::move(samples), name(part), padding);
  };
  if (parts.train) {
    data.train = std::make_unique<PaddedTraining>(std::move(*parts.train), name(" (training)"),
                                                  padding, config.seed);
  }
  data.validation = evaluation(parts.validation, " (validation)");
  data.test = evaluation(parts.test, " (test)");
}

}  // namespace llmc
