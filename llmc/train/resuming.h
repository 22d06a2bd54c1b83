// What a run that goes on must have in common with the run it continues, and what may change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/device/error.h"
#include "llmc/device/math.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/train/checkpointing.h"

namespace llmc {

// Throws unless the checkpoint holds a model of just this shape. Tensors alone would not tell:
// other heads have the same ones, and fewer layers some of them.
inline void check_same_model(const std::filesystem::path& checkpoint,
                             const HuggingFaceConfig& ours) {
  const HuggingFaceConfig saved = read_huggingface_config(checkpoint);
  const auto check = [&](const char* what, const char* flag, std::int64_t asked,
                         std::int64_t found) {
    if (asked == found) return;
    fail(checkpoint.string() + " holds a model with " + what + " " + std::to_string(found) +
             ", not " + std::to_string(asked),
         std::string("resume with the run's own ") + flag);
  };
  check("layers", "--layers or --model", ours.n_layer, saved.n_layer);
  check("heads", "--heads or --model", ours.n_head, saved.n_head);
  check("channels", "--channels or --model", ours.n_embd, saved.n_embd);
  check("context", "--context", ours.n_positions, saved.n_positions);
  check("vocabulary", "--tokenizer", ours.vocab_size, saved.vocab_size);
}

// Brings the place in the data of a run with other sequences, or another text, into the terms of
// this one; returns what a person should know. With sequences of another length as many are counted
// as taken as hold the tokens that were. (Another batch size changes nothing: sequences are
// counted, not batches.)
inline std::vector<std::string> adapt_position(RunPosition& position, std::int64_t T,
                                               const std::string& train) {
  std::vector<std::string> notes;
  if (position.train != train) {
    notes.push_back("the run trained on " + position.train + " so far, it goes on with " + train);
  }
  if (position.T != T && position.T > 0) {
    const std::int64_t samples = ceil_div(position.samples * position.T, T);
    notes.push_back("sequences had " + std::to_string(position.T) + " tokens, now they have " +
                    std::to_string(T) + ": other windows of the text, in another order, from " +
                    "sequence " + std::to_string(samples) + " on");
    position.samples = samples;
  }
  position.T = T;
  position.train = train;
  return notes;
}

}  // namespace llmc
