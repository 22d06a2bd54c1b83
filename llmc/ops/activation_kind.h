// The activation functions of the models of GPT-2's family.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace llmc {

enum class Activation {
  gelu_new,           // GELU in its tanh form, as in GPT-2 (gelu_gate.h)
  gelu_pytorch_tanh,  // the same function
  gelu,               // x Φ(x), Φ the distribution function of the normal distribution
  relu,               // max(x, 0)
};

// Their names in `activation_function` of transformers' config.json.
inline constexpr std::array<const char*, 4> kActivationNames = {"gelu_new", "gelu_pytorch_tanh",
                                                                "gelu", "relu"};

inline const char* activation_name(Activation f) {
  return kActivationNames[static_cast<std::size_t>(f)];
}
inline std::optional<Activation> activation_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kActivationNames.size(); ++i) {
    if (name == kActivationNames[i]) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

}  // namespace llmc
