// The settings of train_gpt2: quantization-aware training.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

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

// The rows; their texts and rules are in train_qat_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> qat_rows();

}  // namespace llmc
