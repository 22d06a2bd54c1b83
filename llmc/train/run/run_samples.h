// The samples of a run: the sequences that it trains on, and those that it evaluates. There are
// windows of texts (window_samples.h), and sequences of different lengths (padded_samples.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/comm/compare_ranks.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/run_position.h"

namespace llmc {

// The facts about the data that a checkpoint records, so that a resumed run notices a change.
struct DataRecord {
  // The names of the sources, without directories, so that data may move: "a.bin:0.7,b.bin:0.3".
  std::string text = {};
  std::int64_t tokens = 0;
  SourceHashes hashes = {};
};

class RunSamples {
 public:
  virtual ~RunSamples() = default;

  virtual std::int64_t count() const = 0;
  virtual DataRecord record() const = 0;
  // The facts about the data of `flag` that ranks compare.
  virtual NamedValues compared_values(const std::string& flag) const = 0;
  // Prints the size of the data to stderr.
  virtual void describe() const = 0;
};

// An epoch has each of the samples once (windows of sources with weights aside), in a new order.
class TrainingSamples : public RunSamples {
 public:
  // Call once, before batch(). A step has `global_batch` samples; the run continues at sample
  // `first`.
  virtual void begin(std::int64_t global_batch, std::int64_t first) = 0;
  // Returns samples first .. first + B - 1 of the run, which belong to one step. Any number of
  // threads may call it.
  virtual Batch batch(std::int64_t first, std::int64_t B) const = 0;
  // Whether targets may be -1.
  virtual bool masks_targets() const = 0;
};

class EvaluationSamples : public RunSamples {
 public:
  // Returns samples first .. first + B - 1, or fewer if they end before that.
  virtual Batch batch(std::int64_t first, std::int64_t B) const = 0;
  // The mean number of bytes that a token stands for, if losses per token are compared by it.
  virtual std::optional<double> bytes_per_token(const Tokenizer&) const { return std::nullopt; }
};

}  // namespace llmc
