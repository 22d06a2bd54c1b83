// Rounds the weights of a parameter to the dtype of a model, which must be able to hold them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/device/dtype.h"
#include "llmc/io/checkpoint/element_check.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

// The smallest magnitude that rounds to infinity in T.
template <class T>
inline constexpr float kOverflow = std::is_same_v<T, fp16> ? 65520.0f
                                   : std::is_same_v<T, bf16>
                                       ? 0x1.ffp127f
                                       : std::numeric_limits<float>::infinity();

// Throws if a weight is infinite in T although it is finite, such as 70000 in fp16. Value i is
// element index(i) of the parameter; by default, the values are the whole parameter.
template <class T, class Index = std::identity>
void require_representable(const ParameterSpec& spec, std::span<const float> values,
                           const Index& index = {}) {
  if constexpr (!std::is_same_v<T, float>) {
    check_part(
        values, spec.shape, index, [](float x) { return std::fabs(x) >= kOverflow<T>; },
        std::string("too large for ") + dtype_name(kDtypeOf<T>),
        [&] { return "tensor " + spec.name; }, "use --dtype fp32, or bf16 instead of fp16");
  }
}

// Returns the weights of a whole parameter, rounded to T. Throws as require_representable() does.
template <class T>
std::vector<T> round_weight(const ParameterSpec& spec, const float* values) {
  const std::span<const float> all(values, static_cast<std::size_t>(spec.size()));
  require_representable<T>(spec, all);
  std::vector<T> rounded(all.size());
  std::ranges::transform(all, rounded.begin(), [](float x) { return from_float<T>(x); });
  return rounded;
}

}  // namespace llmc
