#include "llmc/config/train_memory_settings.h"

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
  };
}

}  // namespace llmc
