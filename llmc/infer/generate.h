// A generation loop on the host: reads the prompts, then repeatedly draws one token of each
// sequence and reads it. Training runs it over a SequenceReader for its samples, tests over
// test/decoder.h. infer_gpt2 draws on the device (scheduler.h).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/ops/sampling/host_sampling.h"

namespace llmc {

struct GenerationOptions {
  std::int64_t tokens = 128;              // maximum number of tokens to generate per sequence
  SamplingOptions sampling = {};          // how each token is drawn
  std::uint64_t seed = 1337;              // seed of the draws
  std::int64_t step = 0;                  // step of the training run that samples; otherwise 0
  std::optional<std::int32_t> stop = {};  // the token that ends the text and is not part of it
  // Tokens from this number on are never drawn; empty: all tokens of the model may be.
  std::optional<std::int64_t> vocabulary = {};
};

// The random number in (0, 1) that decides the token at `position` of sequence b. It depends only
// on its arguments, so a seed always results in the same text, whatever else is in the same batch.
inline double sampling_uniform(std::uint64_t seed, std::int64_t step, std::int64_t b,
                               std::int64_t position) {
  const PhiloxBits bits =
      random_bits(seed, RandomPurpose::sampling, static_cast<std::uint32_t>(step),
                  static_cast<std::uint32_t>(b), static_cast<std::uint64_t>(position));
  return static_cast<double>(uniform_from_bits(bits.words[0]));
}

using Prompts = std::vector<std::vector<std::int32_t>>;

// Continues prompts of equal length (at least one token) with a reader built for as many sequences,
// and calls use(sequence, token) for each token as soon as it is drawn; `false` ends the
// generation. Reader: SequenceReader, or the Decoder of tests. Returns `Finish::context` if prompt
// and text fill the reader's maximum length. `options.stop` is only for a single sequence.
template <class Reader, class Use>
Finish generate(Reader& reader, const Prompts& prompts, const GenerationOptions& options,
                Use&& use) {
  require(!options.stop || prompts.size() == 1, "a stop token is set for several sequences");
  typename Reader::Logits logits;
  std::vector<std::int32_t> tokens;
  for (const auto& prompt : prompts) tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  std::int64_t position = std::ssize(prompts[0]);  // index of the next token
  reader.prefill(std::exchange(tokens, {}));
  for (std::int64_t count = 0; count < options.tokens; ++count, ++position) {
    if (position >= reader.max_length()) return Finish::context;
    tokens.clear();
    for (std::int64_t b = 0; b < std::ssize(prompts); ++b) {
      reader.logits(b, logits);
      if (options.vocabulary) logits.resize(static_cast<std::size_t>(*options.vocabulary));
      const double uniform = sampling_uniform(options.seed, options.step, b, position);
      tokens.push_back(sample_token(logits, options.sampling, uniform));
      if (tokens.back() == options.stop) return Finish::stop;
      if (!use(b, tokens.back())) return Finish::cancelled;
    }
    const bool has_next = count + 1 < options.tokens && position + 1 < reader.max_length();
    if (has_next) reader.advance(tokens);
  }
  return Finish::length;
}

}  // namespace llmc
