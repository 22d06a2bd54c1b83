// The loop of generation: a prompt in, then a token drawn and read, again and again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/infer/decoder.h"
#include "llmc/infer/finish_reason.h"
#include "llmc/ops/sampling.h"

namespace llmc {

struct GenerationOptions {
  std::int64_t tokens = 128;              // to generate, at most
  SamplingOptions sampling = {};          // how each is drawn
  std::uint64_t seed = 1337;              // of the draws
  std::optional<std::int32_t> stop = {};  // the token that ends the text; no part of it
};

// The random number in (0, 1) that decides the token at `position` of sequence b. It depends on
// these alone, so a seed gives the same text whatever else is generated beside it.
inline double sampling_uniform(std::uint64_t seed, std::int64_t b, std::int64_t position) {
  const PhiloxBits bits =
      random_bits(seed, RandomPurpose::sampling, 0, static_cast<std::uint32_t>(b),
                  static_cast<std::uint64_t>(position));
  return static_cast<double>(uniform_from_bits(bits.words[0]));
}

// Continues one prompt (at least one token) with a decoder built for one sequence, and calls
// use(token) for each token as soon as it is drawn. Ends with `Finish::context` where prompt and
// text together fill the model's context. The decoder's capacity is at least the prompt and all
// tokens to come but the last, or the context. Throws an Error when logits are not finite.
template <class T, class Use>
Finish generate(Decoder<T>& decoder, ParameterSource<T>& source,
                const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                Gemm& gemm, Stream& stream, Use&& use) {
  std::vector<T> logits;
  decoder.prefill(source, prompt, gemm, stream);
  const std::int64_t context = decoder.config().context;
  auto position = static_cast<std::int64_t>(prompt.size());  // of the next token
  for (std::int64_t count = 0; count < options.tokens; ++count, ++position) {
    if (position >= context) return Finish::context;
    decoder.logits(0, logits, source, gemm, stream);
    require_finite(logits);
    const std::int32_t token =
        sample_token(logits, options.sampling, sampling_uniform(options.seed, 0, position));
    if (token == options.stop) return Finish::stop;
    use(token);
    const bool more = count + 1 < options.tokens && position + 1 < context;
    if (more) decoder.advance(source, {token}, gemm, stream);
  }
  return Finish::length;
}

}  // namespace llmc
