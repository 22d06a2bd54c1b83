#include "llmc/config/train_rank_settings.h"

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/rank_rules.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/train_settings.h"
#include "llmc/control/control_settings.h"

// Each group is a struct with the values and a list of rows. Rules and checks that the rows call
// are in rank_rules.h.
//
// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> rank_rows() {
  return {
      {.flag = "--ranks",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.ranks); },
       .unit = "RANKS",
       .help = "number of ranks that --dry-run, --plan and --print-mesh plan for; scripts/run.sh "
               "-np N, "
               "which calls mpirun, sets that of a run",
       .fallback = {"the ranks that were started, else 1",
                    [](const Resolution<TrainProgram>& r) { return r.facts.ranks; }},
       .range = between(1, 65536),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special = {.resume_text =
                       "the state does not depend on it; steps have more or fewer tokens unless "
                       "--total-batch-tokens was typed"},
       .implied_value =
           [](const Resolution<TrainProgram>& r) {
             return std::optional<SettingValue>(r.facts.ranks);
           }},
      {.flag = "--tp",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.tp); },
       .unit = "RANKS",
       .help = "tensor parallelism: number of neighbouring ranks that compute each layer together, "
               "on the same samples; must divide the heads and the ranks; ranks / (--tp x --pp) "
               "are the data-parallel ranks",
       .fallback = 1,
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "tensor ranks",
       .special = {.resume_text =
                       "the state does not depend on it; steps have more or fewer tokens unless "
                       "--total-batch-tokens was typed"},
       .implied_value = [](const Resolution<TrainProgram>& r) { return fitting_tensor_ranks(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_tensor_ranks(r); }},
      {.flag = "--sequence-parallel",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.sequence_parallel); },
       .help =
           "with --tp: spread the rows of the residual stream, of the norms and of dropout over "
           "the tensor ranks, for less memory and a little more traffic",
       .implied_value =
           [](const Resolution<TrainProgram>& r) { return fitting_sequence_parallel(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_sequence_parallel(r); }},
  };
}

// Pipeline parallelism. Below the rows of tensor groups.
Settings<TrainProgram> pipeline_rows() {
  return {
      {.flag = "--pp",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.pp); },
       .unit = "RANKS",
       .help = "pipeline parallelism: number of ranks that divide the layers into stages, on the "
               "same samples; --tp x --pp must divide the ranks",
       .fallback = 1,
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "pipeline ranks",
       .special = {.resume_text =
                       "the state does not depend on it; steps have more or fewer tokens unless "
                       "--total-batch-tokens was typed"},
       .implied_value = [](const Resolution<TrainProgram>& r) { return fitting_pipeline_ranks(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_pipeline_ranks(r); }},
      {.flag = "--pp-chunks",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.pp_chunks); },
       .unit = "N",
       .help = "with --pp: stages of each pipeline rank; more than 1 is the interleaved schedule, "
               "which idles less, sends more, and needs a --grad-accum that is a multiple of --pp",
       .fallback = 1,
       .range = between(1, 65536),
       .quantity = "pipeline chunks",
       .special = {.resume_text = "the state does not depend on it"},
       .implied_value =
           [](const Resolution<TrainProgram>& r) { return fitting_pipeline_chunks(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_pipeline_chunks(r); }},
      {.flag = "--pp-layers",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.pp_layers); },
       .unit = "LAYERS,...",
       .help = "with --pp: number of layers of each of the --pp x --pp-chunks stages in the order "
               "of the model, separated by commas",
       .fallback = "as even as possible, fewer at the ends",
       .quantity = "layers per stage",
       .check =
           [](const std::string& text) {
             return setting_detail::number_error<std::int64_t>(text, at_least(1));
           },
       .implied_value =
           [](const Resolution<TrainProgram>& r) { return fitting_pipeline_layers(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_pipeline_layers(r); }},
      {.flag = "--pp-schedule",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.pp_schedule); },
       .unit = "FILE.csv",
       .help =
           "with --pp: compute in the order of this file, in the CSV form of PyTorch's "
           "pipelining: a row per pipeline rank, cells such as 0F2 (stage, F or B, micro-batch)",
       .fallback = "1F1B, or interleaved 1F1B with --pp-chunks",
       .on_resume = OnResume::process,
       .verify = [](const Resolution<TrainProgram>& r) { return check_pipeline_schedule(r); }},
      {.flag = "--dump-schedule",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.dump_schedule); },
       .unit = "FILE.csv|FILE.html|FILE.json",
       .help = "with --pp: write the timeline of the schedule, as CSV that --pp-schedule reads, as "
               "a page with a picture, or as a trace for chrome://tracing and Perfetto; with "
               "--machine also with predicted times, with --dry-run without a run",
       .on_resume = OnResume::process,
       .check = dump_file_error,
       .verify = [](const Resolution<TrainProgram>& r) { return check_dump_schedule(r); }},
  };
}

// Below the rows of tensor groups.
Settings<TrainProgram> zero_rows() {
  return {
      {.flag = "--zero",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.zero); },
       .unit = "STAGE",
       .help = "ZeRO: ranks divide nothing (0), the optimizer state (1), also gradients (2), or "
               "also weights (3); no effect with one rank",
       .fallback = 1,
       .range = between(0, 3),
       .quantity = "ZeRO stage"},
      {.flag = "--shard-group",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.shard_group); },
       .unit = "RANKS",
       .help = "number of data-parallel ranks, neighbours, that divide one training state; groups "
               "hold equal states; must divide ranks / (--tp x --pp); 0 means all of them",
       .fallback = 0,
       .range = at_least(0),
       .quantity = "shard group",
       .implied_value = [](const Resolution<TrainProgram>& r) { return fitting_shard_group(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_shard_group(r); }},
      {.flag = "--mesh",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.mesh); },
       .help =
           "auto: take the layout that fits and is predicted to be the fastest, as --plan does, "
           "for "
           "each of --tp, --sequence-parallel, --pp, --pp-chunks, --zero, --shard-group, "
           "--batch-size, --grad-accum, --recompute and --offload that is not typed; steps keep "
           "their tokens",
       .fallback = SettingValue("flags"),
       .excluded_flags = {"--plan", "--print-mesh"},
       .on_resume = OnResume::free,
       .special = {.resume_text = "auto chooses again, for the ranks that there are, and keeps the "
                                  "tokens of a step"}},
      {.flag = "--comm",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.comm); },
       .help =
           "connection of the ranks; auto selects NCCL if every rank has a GPU of its own, else "
           "MPI if mpirun started them, else TCP, which needs no library",
       .fallback = SettingValue("auto"),
       .on_resume = OnResume::process,
       .quantity = "communication"},
      {.flag = "--heartbeat-timeout",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.heartbeat_timeout); },
       .unit = "SECONDS",
       .help = "a rank that gives no sign of life for this time is lost, and the other ranks end; "
               "each gives one at least every second",
       .fallback = ControlSettings{}.heartbeat_timeout,
       .range = between(2, 86400),
       .on_resume = OnResume::process},
      {.flag = "--comm-timeout",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.comm_timeout); },
       .unit = "SECONDS",
       .help = "a rank that others wait for in a collective hangs, and all ranks end, if it makes "
               "no progress for this time",
       .fallback = ControlSettings{}.comm_timeout,
       .range = between(2, 86400),
       .on_resume = OnResume::process},
      {.flag = "--check-links",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.check_links); },
       .help =
           "before the run, measure the matrix products of each rank and the all-reduce of each "
           "pair of ranks, print a table, and name those that are more than 20% slower than "
           "the median",
       .on_resume = OnResume::process},
      {.flag = "--verify-every",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.verify_every); },
       .unit = "STEPS",
       .help = "steps between checks that all ranks hold equal copies of the loss, the weights and "
               "the optimizer state; a difference ends the run and names the ranks; a check reads "
               "the whole state once; 0 disables the checks",
       .fallback = {"100 with several ranks, else 0",
                    [](const Resolution<TrainProgram>& r) {
                      return SettingValue(std::int64_t{r.facts.ranks > 1 ? 100 : 0});
                    }},
       .range = at_least(0)},
  };
}

// The flags that print a plan instead of running it.
Settings<TrainProgram> plan_rows() {
  return {
      {.flag = "--print-mesh",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.print_mesh); },
       .help = "print the place and the groups of every rank, and exit",
       .on_resume = OnResume::process},
      {.flag = "--dry-run",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.dry_run); },
       .help = "print the memory of each rank and the bytes that it sends per step, and exit; no "
               "text is read",
       .on_resume = OnResume::process},
      {.flag = "--gpu-memory",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.gpu_memory); },
       .unit = "GIB",
       .help = "memory of the GPU of each rank, of which 2 GiB stay free; --plan and --mesh auto "
               "use it "
               "instead of that of the machine; --dry-run prints whether the run fits, and exits "
               "with 1 if "
               "it does not; without --batch-size, the largest micro-batch that fits is planned",
       .range = between(0.1, 1e6),
       .on_resume = OnResume::process},
      {.flag = "--plan",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.plan); },
       .help = "predict the step time of all layouts of --ranks ranks on --machine, print the "
               "fastest that fit with their memory, and exit; flags of the layout that are typed "
               "stay; no text is read",
       .excluded_flags = {"--dry-run"},
       .on_resume = OnResume::process},
      {.flag = "--machine",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.machine); },
       .unit = "NAME|FILE.json",
       .help =
           "machine of --plan, --mesh auto and --dump-schedule: v100, a100, h100, h200 or cpu of "
           "scripts/machines, or a file with the same constants, which --measure-machine writes",
       .fallback = {"h100; with --mesh auto, that of the device",
                    [](const Resolution<TrainProgram>&) { return SettingValue(""); }},
       .on_resume = OnResume::process},
      {.flag = "--software",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.software); },
       .unit = "NAME|FILE.json",
       .help = "program whose times --plan predicts: llmc, this one, or another of "
               "scripts/machines/software; memory is always that of this one",
       .fallback = SettingValue("llmc"),
       .required_flags = {"--plan"},
       .on_resume = OnResume::process},
      {.flag = "--top",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.top); },
       .unit = "N",
       .help = "number of layouts that --plan ranks",
       .fallback = 10,
       .range = between(1, 10000),
       .required_flags = {"--plan"},
       .on_resume = OnResume::process},
      {.flag = "--tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.tokens); },
       .unit = "TOKENS",
       .help = "tokens of the whole training, for which --plan adds days and GPU hours",
       .range = between(1, 1e15),
       .required_flags = {"--plan"},
       .on_resume = OnResume::process},
      {.flag = "--plan-out",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.plan_out); },
       .unit = "FILE.csv|FILE.json",
       .help = "also write all layouts of --plan to this file, with the reason why a layout is "
               "not ranked",
       .required_flags = {"--plan"},
       .on_resume = OnResume::process,
       .check = plan_file_error},
      {.flag = "--measure-machine",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.measure_machine); },
       .unit = "FILE.json",
       .help =
           "measure the devices and links of these ranks with small models in --dtype, for less "
           "than a minute, write the machine file that --machine reads, and exit",
       .excluded_flags = {"--plan", "--dry-run", "--print-mesh"},
       .on_resume = OnResume::process,
       .check = machine_file_error},
  };
}

}  // namespace llmc
