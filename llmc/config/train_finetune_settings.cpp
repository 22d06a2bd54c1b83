#include "llmc/config/train_finetune_settings.h"

#include "llmc/config/setting.h"
#include "llmc/config/train_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

namespace {

void require_one_list(const Resolution<TrainProgram>& r) {
  const FinetuneSettings<Resolved>& finetune = r.config.finetune;
  const std::vector<std::string>&only = finetune.train_only, &freeze = finetune.freeze;
  if (only.empty() || freeze.empty()) return;
  fail_usage("--train-only and --freeze exclude each other",
             "--train-only names all parameters that learn, --freeze all that do not");
}

}  // namespace

Settings<TrainProgram> finetune_rows() {
  return {
      {.flag = "--train-only",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.train_only); },
       .unit = "PATTERN,...",
       .help = "train only the parameters whose whole names match one of these patterns of the "
               "shell, such as 'h.1[01].*,ln_f.*'; the others are frozen: no gradient, no "
               "optimizer state, no weight decay",
       .fallback = "all parameters learn",
       .changes_results = true,
       .on_resume = OnResume::fixed},
      {.flag = "--freeze",
       .field = [](auto& s) -> decltype(auto) { return (s.finetune.freeze); },
       .unit = "PATTERN,...",
       .help = "freeze the parameters that match, such as 'wte.*,wpe.*,h.[0-5].*', and train the "
               "others. (The backward pass ends at the lowest block that learns; blocks below "
               "keep no activations)",
       .fallback = "nothing is frozen",
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .verify = require_one_list},
  };
}

}  // namespace llmc
