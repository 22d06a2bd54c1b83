// Reads sequences without a cache: every step runs the model over whole sequences. It is slow
// for long texts, but it is exactly what training computes, and it needs no memory of its own.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "llmc/models/evaluation_pass.h"

namespace llmc {

class SequenceReader {
 public:
  using Logits = std::vector<float>;

  // Reads B sequences together, at most as many as the runner was built for.
  SequenceReader(EvaluationPass& runner, std::int64_t B)
      : runner_(runner), sequences_(static_cast<std::size_t>(B)) {}

  // Starts with B prompts of equal length T >= 1 (B*T ids, concatenated).
  void prefill(const std::vector<std::int32_t>& tokens) {
    const auto T_prompt = std::ssize(tokens) / std::ssize(sequences_);
    for (std::size_t b = 0; b < sequences_.size(); ++b) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b) * T_prompt;
      sequences_[b].assign(first, first + T_prompt);
    }
    run();
  }

  // Reads one more token of each sequence, B ids.
  void advance(const std::vector<std::int32_t>& tokens) {
    for (std::size_t b = 0; b < sequences_.size(); ++b) sequences_[b].push_back(tokens[b]);
    run();
  }

  // The logits (V) for the token that follows sequence b, in host memory.
  void logits(std::int64_t b, Logits& values) {
    runner_.read_logits((b + 1) * length() - 1, values);
  }

  std::int64_t max_length() const { return runner_.shape().T; }  // maximum tokens of a sequence
  std::int64_t length() const { return std::ssize(sequences_[0]); }

 private:
  void run() {
    Batch batch{.B = std::ssize(sequences_), .T = length()};
    for (const auto& sequence : sequences_) {
      batch.inputs.insert(batch.inputs.end(), sequence.begin(), sequence.end());
    }
    runner_.run({.batch = std::move(batch)});
  }

  EvaluationPass& runner_;
  std::vector<std::vector<std::int32_t>> sequences_;  // all of equal length
};

}  // namespace llmc
