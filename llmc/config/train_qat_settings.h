// The settings of train_gpt2: quantization-aware training.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

template <template <class> class Value>
struct QatSettings {
  Value<QatMode> mode;
  Value<std::int64_t> start;      // first quantized step, counted from 1
  Value<ZeroPoints> zero_points;  // of activations
};

// Returns an error for a value of --qat, or an empty text.
inline std::string qat_error(const std::string& text) {
  if (text == "w8a8-static") {
    return "'w8a8-static' is not for training: its scales come from a calibration text, and would "
           "be stale after every change of the weights; use w8a8, whose scales follow them";
  }
  const auto names = choice_names(QatMode{});
  return setting_detail::choice_error(text, {names.begin(), names.end()},
                                      other_choice_names(QatMode{}));
}

template <class P>
Settings<P> qat_rows() {
  return {
      {.flag = "--qat",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.mode); },
       .help = "quantization-aware training: the forward pass multiplies INT8 codes of the weights "
               "(w8), or of weights and activations (w8a8), as infer_gpt2 --quant does",
       .fallback = SettingValue("none"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .also_called = {"--quant", "--quantize", "--quantization", "--int8"},
       .check = [](const std::string& text) { return qat_error(text); }},
      {.flag = "--qat-start",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.start); },
       .unit = "STEP",
       .help = "first quantized step; evaluations are quantized from the end of this step on, and "
               "with --steps 0 always",
       .fallback = 1,
       .range = at_least(1),
       .condition = {"--qat", {"w8", "w8a8"}},
       .changes_results = true,
       .on_resume = OnResume::noted},
      {.flag = "--zero-points",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.zero_points); },
       .help = "for --qat w8a8: zero points of the activations; auto: each token has one",
       .fallback = SettingValue("auto"),
       .condition = {"--qat", {"w8a8"}},
       .changes_results = true,
       .on_resume = OnResume::noted},
  };
}

}  // namespace llmc

#pragma GCC diagnostic pop
