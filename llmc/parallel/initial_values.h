// The initial values of parameters, as the table describes them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

// Initial values of elements first to first + n - 1 of this rank's part of a parameter.
inline void fill_initial(float* values, std::int64_t n, std::int64_t first,
                         const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
  switch (spec.initializer) {
    case Initializer::normal:
      return normal_fill(values, n, first, spec.part.index, seed, spec.id, 0.0f, spec.stddev,
                         stream);
    case Initializer::uniform:
      return uniform_fill(values, n, first, spec.part.index, seed, spec.id, spec.bound, stream);
    case Initializer::one:
      return constant_fill(values, n, 1.0f, stream);
    case Initializer::zero:
      return constant_fill(values, n, 0.0f, stream);
  }
}

// The same, rounded to T, chunk by chunk: the memory plan has no room for a large tensor in fp32.
template <class T>
void fill_initial_rounded(T* weights, std::int64_t size, std::int64_t element,
                          const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
  constexpr std::int64_t kChunk = 1 << 16;
  const Buffer<float> chunk(std::min(size, kChunk));
  for (std::int64_t first = 0; first < size; first += kChunk) {
    const std::int64_t n = std::min(kChunk, size - first);
    fill_initial(chunk.data(), n, element + first, spec, seed, stream);
    convert(weights + first, static_cast<const float*>(chunk.data()), n, stream);
  }
  stream.synchronize();
}

}  // namespace llmc
