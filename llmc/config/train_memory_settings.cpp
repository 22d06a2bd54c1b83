#include "llmc/config/train_memory_settings.h"

#include "llmc/config/offload_places.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_settings.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

namespace {

void require_state_in_host_memory(const Resolution<TrainProgram>& r) {
  const MemorySettings<Resolved>& memory = r.config.memory;
  if (memory.optimizer_on != OptimizerOn::cpu) return;
  const Place place = parse_offload(memory.offload).optimizer.place;
  if (place == Place::host) return;
  fail_usage(std::string("--optimizer-on cpu needs the optimizer's state in host memory, and it ") +
                 (place == Place::disk ? "is in a directory" : "is on the device"),
             "add optimizer to --offload, without a directory");
}

}  // namespace

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
      {.flag = "--optimizer-on",
       .field = [](auto& s) -> decltype(auto) { return (s.memory.optimizer_on); },
       .help = "where the optimizer updates the weights: on the device, through which offloaded "
               "state passes; or on the CPU, which needs --offload optimizer in host memory: only "
               "gradients and new weights move, with the same results up to fp32 rounding (on a "
               "CPU the same bits)",
       .fallback = SettingValue("device"),
       .verify = require_state_in_host_memory},
  };
}

}  // namespace llmc
