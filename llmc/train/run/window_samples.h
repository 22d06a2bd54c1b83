// Windows of texts and token files, for language models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/io/data/batches.h"
#include "llmc/train/run/run_samples.h"

namespace llmc {

class TrainingWindows final : public TrainingSamples {
 public:
  explicit TrainingWindows(ShuffledWindows windows) : windows_(std::move(windows)) {}

  std::int64_t count() const override { return windows_.windows(); }
  DataRecord record() const override;
  NamedValues compared_values(const std::string& flag) const override;
  // One line per source of --train.
  void describe() const override;

  void begin(std::int64_t, std::int64_t) override {}
  Batch batch(std::int64_t first, std::int64_t B) const override {
    return windows_.batch(first, B);
  }
  bool masks_targets() const override { return false; }

 private:
  ShuffledWindows windows_;
};

class ValidationWindows final : public EvaluationSamples {
 public:
  // `T`: tokens of a window.
  ValidationWindows(ConsecutiveWindows windows, std::int64_t T)
      : windows_(std::move(windows)), T_(T) {}

  std::int64_t count() const override { return windows_.windows(); }
  DataRecord record() const override;
  NamedValues compared_values(const std::string& flag) const override;
  // One line per source of --val, with the tokens that its windows leave out.
  void describe() const override;

  Batch batch(std::int64_t first, std::int64_t B) const override {
    return windows_.batch(first, B);
  }
  // From at most the first 4 Mi tokens of each source. Empty if the tokens have no text. A loss in
  // nats per token, divided by this number and by ln 2, is in bits per byte, which can be compared
  // between tokenizers.
  std::optional<double> bytes_per_token(const Tokenizer& tokenizer) const override;

 private:
  ConsecutiveWindows windows_;
  std::int64_t T_;
};

}  // namespace llmc
