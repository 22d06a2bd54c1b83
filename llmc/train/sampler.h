// Text from a model as it learns: whole forward passes over a growing sequence, no cache. Slow for
// long texts, but it is exactly what training computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/model/batch_stage.h"
#include "llmc/model/gpt2.h"
#include "llmc/ops/sampling.h"
#include "llmc/train/run/interruption.h"

namespace llmc {

// What samples begin with: the tokens of `asked`, for a model that sees T tokens. Where nothing is
// asked for: a line break, or where the tokenizer has none, end of text or its first token.
inline std::vector<std::int32_t> sample_prompt(const std::string& asked, const Tokenizer& tokenizer,
                                               std::int64_t T) {
  const std::string text = asked.empty() ? "\n" : asked;
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (ids.empty() && asked.empty()) ids = {tokenizer.end_of_text().value_or(0)};
  if (ids.empty()) fail("--prompt '" + text + "' has no tokens", "a text with at least one token");
  const auto room = static_cast<std::size_t>(T - 1);
  if (ids.size() > room) {
    fail("--prompt has " + std::to_string(ids.size()) + " tokens",
         "at most --seq-len - 1 = " + std::to_string(room));
  }
  return ids;
}

// `count` continuations of the prompt, side by side, up to `length` tokens each with the prompt.
// The random numbers depend on seed, step, sample and place alone. An interruption ends them early.
template <class T>
std::vector<std::vector<std::int32_t>> sample_tokens(Gpt2<T>& model, ParameterSource<T>& source,
                                                     BatchStage& stage,
                                                     const std::vector<std::int32_t>& prompt,
                                                     std::int64_t count, std::int64_t length,
                                                     std::uint64_t seed, std::int64_t step,
                                                     Gemm& gemm, Stream& stream) {
  std::vector<std::vector<std::int32_t>> samples(static_cast<std::size_t>(count), prompt);
  std::vector<T> logits(static_cast<std::size_t>(model.config().vocabulary));
  for (auto t = static_cast<std::int64_t>(prompt.size()); t < length && !Interruption::requested();
       ++t) {
    std::vector<std::int32_t> inputs;
    for (const auto& sample : samples) inputs.insert(inputs.end(), sample.begin(), sample.end());
    const DeviceBatch batch = stage.put(inputs, {}, count, t, stream);
    model.forward(source, batch, gemm, stream);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = model.logits_of_row(source, i * t + t - 1, gemm, stream);
      copy_to_host(logits.data(), row.data, static_cast<std::int64_t>(logits.size()), stream);
      stream.synchronize();
      const PhiloxBits bits =
          random_bits(seed, RandomPurpose::sampling, static_cast<std::uint32_t>(step),
                      static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(t));
      samples[i].push_back(
          sample_token(logits, {}, static_cast<double>(uniform_from_bits(bits.words[0]))));
    }
  }
  return samples;
}

}  // namespace llmc
