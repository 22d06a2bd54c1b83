// Text from a model as it learns: whole forward passes over a growing sequence, no cache. Slow for
// long texts, but it is exactly what training computes.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/model/gpt2.h"
#include "llmc/train/batch_stage.h"

namespace llmc {

// One id drawn from softmax(logits) with `uniform` in (0, 1): the first at which the cumulative
// probability reaches it.
template <class T>
std::int32_t draw_token(const std::vector<T>& logits, float uniform) {
  double highest = -INFINITY;
  for (const T& x : logits) highest = std::fmax(highest, static_cast<double>(to_float(x)));
  const auto weight = [&](const T& x) {
    return std::exp(static_cast<double>(to_float(x)) - highest);
  };
  double total = 0;
  for (const T& x : logits) total += weight(x);
  double left = static_cast<double>(uniform) * total;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    left -= weight(logits[id]);
    if (left <= 0) return static_cast<std::int32_t>(id);
  }
  return static_cast<std::int32_t>(logits.size()) - 1;
}

// `count` continuations of the prompt, side by side, up to `length` tokens each with the prompt.
// The random numbers depend on seed, step, sample and place alone.
template <class T>
std::vector<std::vector<std::int32_t>> sample_tokens(Gpt2<T>& model, ParameterSource<T>& source,
                                                     BatchStage& stage,
                                                     const std::vector<std::int32_t>& prompt,
                                                     std::int64_t count, std::int64_t length,
                                                     std::uint64_t seed, std::int64_t step,
                                                     Gemm& gemm, Stream& stream) {
  std::vector<std::vector<std::int32_t>> samples(static_cast<std::size_t>(count), prompt);
  std::vector<T> logits(static_cast<std::size_t>(model.config().vocabulary));
  for (auto t = static_cast<std::int64_t>(prompt.size()); t < length; ++t) {
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
      samples[i].push_back(draw_token(logits, uniform_from_bits(bits.words[0])));
    }
  }
  return samples;
}

}  // namespace llmc
