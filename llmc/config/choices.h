// Settings with a fixed set of names. The names of an enum are in the order of its values.
#pragma once

#include <array>

#include "llmc/device/dtype.h"

namespace llmc {

// Where a program runs; automatic: on a GPU if there is one.
enum class DeviceChoice { automatic, cuda, host };

// Learning-rate schedule after warm-up. wsd (warm-up, stable, decay; Hu et al., "MiniCPM", 2024)
// keeps the peak rate until the last part of the run, in which the rate falls linearly to the final
// one. The decay can start after any step of the stable part, so one long run serves several
// budgets.
enum class Decay { cosine, linear, constant, wsd };

// `standard` stores the (T, T) matrix of probabilities. It is a baseline.
enum class Attention { flash, standard };

// Documents that tokenize drops: none, those with the same bytes, or near duplicates as well.
enum class Dedup { none, exact, near };

inline constexpr std::array<const char*, 3> choice_names(DeviceChoice) {
  return {"auto", "cuda", "host"};
}
inline constexpr std::array<const char*, 4> choice_names(Decay) {
  return {"cosine", "linear", "constant", "wsd"};
}
inline constexpr std::array<const char*, 2> choice_names(Attention) {
  return {"flash", "standard"};
}
inline constexpr std::array<const char*, 3> choice_names(Dedup) {
  return {"none", "exact", "near"};
}
inline constexpr std::array<const char*, 3> choice_names(Dtype) {
  return {"fp32", "bf16", "fp16"};
}

template <class Choice>
const char* choice_name(Choice choice) {
  return choice_names(choice)[static_cast<std::size_t>(choice)];
}

}  // namespace llmc
