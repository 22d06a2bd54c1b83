#include "llmc/config/train_memory_settings.h"

#include "llmc/config/offload_places.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> memory_rows() {
  return {
      {.flag = "--recompute",
       .field = [](auto& s) -> decltype(auto) { return (s.memory.recompute); },
       .help = "activations that the backward pass computes again instead of storing them, with "
               "the same results: selective, the outputs of norms and activation functions, and "
               "the (T, T) matrices of --attention standard; full, everything but the input of a "
               "block. (Megatron's selective is the core of attention, which --attention flash "
               "never stores)",
       .fallback = SettingValue("none")},
      {.flag = "--recompute-blocks",
       .field = [](auto& s) -> decltype(auto) { return (s.memory.recompute_blocks); },
       .unit = "N",
       .help = "with --recompute: only in the first N blocks of each pipeline stage; 0 means all "
               "of them",
       .fallback = 0,
       .range = at_least(0),
       .special = {.condition = {"--recompute", {"selective", "full"}}}},
      {.flag = "--offload",
       .field = [](auto& s) -> decltype(auto) { return (s.memory.offload); },
       .unit = "KIND[=host|DIR],...",
       .help = "keep these kinds of training state in host memory (default), or in a file in a "
               "directory, while the device does not need them, with the same results: optimizer "
               "(moments and master weights), gradients, parameters, activations; none disables it",
       .fallback = "none",
       .check = [](const std::string& text) { return offload_error(text); },
       .verify = [](const Resolution<TrainProgram>& r) { parse_offload(r.config.memory.offload); }},
  };
}

}  // namespace llmc
