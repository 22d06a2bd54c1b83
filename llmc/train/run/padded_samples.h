// Sequences of different lengths, each padded to the longest of its batch: labelled texts for a
// classifier, and conversations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/data/padded_batches.h"
#include "llmc/train/run/run_samples.h"

namespace llmc {

// Sequences with targets, and their origin.
struct SampleSequences {
  std::string name = {};    // of the source
  std::string part = {};    // of it, for messages: " (training)"
  std::string what = {};    // "texts" or "conversations"
  std::string detail = {};  // of the source, for messages: ", 4265 negative, 4264 positive"
  std::vector<TokenSequence> sequences = {};
};

class PaddedTraining final : public TrainingSamples {
 public:
  PaddedTraining(SampleSequences source, const PaddingOptions& padding, std::uint64_t seed);

  std::int64_t count() const override { return sequences_.count(); }
  DataRecord record() const override { return record_; }
  NamedValues compared_values(const std::string& flag) const override;
  void describe() const override;

  // Throws if a step of the run would not begin at sample `first`, because an earlier part of the
  // run had steps of another size.
  void begin(std::int64_t global_batch, std::int64_t first) override;
  Batch batch(std::int64_t first, std::int64_t B) const override;
  bool masks_targets() const override { return true; }

 private:
  DataRecord record_;
  std::string description_;
  PaddedSequences sequences_;
  std::uint64_t seed_;
  std::optional<ShuffledSequences> shuffled_;
};

// From the longest sequence to the shortest.
class PaddedEvaluation final : public EvaluationSamples {
 public:
  PaddedEvaluation(SampleSequences source, const PaddingOptions& padding);

  std::int64_t count() const override { return sequences_.count(); }
  DataRecord record() const override { return record_; }
  NamedValues compared_values(const std::string& flag) const override;
  void describe() const override;

  Batch batch(std::int64_t first, std::int64_t B) const override;

 private:
  DataRecord record_;
  std::string description_;
  PaddedSequences sequences_;
  SortedSequences sorted_;
};

}  // namespace llmc
