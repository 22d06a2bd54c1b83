#include "llmc/config/train_qat_settings.h"

#include <cstdint>
#include <string>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/train_finetune_settings.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> qat_rows() {
  return {
      {.flag = "--qat",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.mode); },
       .help = "quantization-aware training: the forward pass multiplies INT8 codes of the weights "
               "(w8), or of weights and activations (w8a8), as infer_gpt2 --quant does",
       .fallback = SettingValue("none"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .check = [](const std::string& text) { return qat_error(text); },
       .verify = refuse_qat_with_adapter},
      {.flag = "--qat-start",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.start); },
       .unit = "STEP",
       .help = "first quantized step; evaluations are quantized from the end of this step on, and "
               "with --steps 0 always",
       .fallback = 1,
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--qat", {"w8", "w8a8"}}}},
      {.flag = "--zero-points",
       .field = [](auto& s) -> decltype(auto) { return (s.qat.zero_points); },
       .help = "for --qat w8a8: zero points of the activations; auto: each token has one",
       .fallback = SettingValue("auto"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.condition = {"--qat", {"w8a8"}}}},
  };
}

}  // namespace llmc
