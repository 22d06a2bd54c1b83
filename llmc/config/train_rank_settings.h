// The settings of train_gpt2: ranks, ZeRO, and what is shown without a run.
#pragma once

#include <cstdint>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"

// Each group is a struct with the values and a list of rows. Rules and checks that the rows call
// are in train_rules.h.
//
// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

template <template <class> class Value>
struct RankSettings {
  Value<std::int64_t> ranks;
  Value<std::int64_t> tp;  // ranks that compute each layer together
  Value<bool> sequence_parallel;
  Value<std::int64_t> zero;         // ZeRO stage
  Value<std::int64_t> shard_group;  // ranks that divide one training state; 0: all
  Value<CommChoice> comm;
  Value<std::int64_t> verify_every;  // steps; 0: never
  Value<bool> print_mesh, dry_run;
};

template <class P>
Settings<P> rank_rows() {
  return {
      {.flag = "--ranks",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.ranks); },
       .unit = "RANKS",
       .help =
           "number of ranks that --dry-run and --print-mesh plan for; mpirun sets that of a run",
       .fallback = {"the ranks that mpirun started, else 1",
                    [](const Resolution<P>& r) { return r.facts.ranks; }},
       .range = between(1, 65536),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .resume_text = "the state does not depend on it; steps have more or fewer tokens unless "
                      "--grad-accum changes as well",
       .also_called = {"--world-size", "--nproc-per-node", "--num-gpus", "--gpus"},
       .implied_value =
           [](const Resolution<P>& r) { return std::optional<SettingValue>(r.facts.ranks); }},
      {.flag = "--tp",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.tp); },
       .unit = "RANKS",
       .help = "tensor parallelism: number of neighbouring ranks that compute each layer together, "
               "on the same samples; must divide the heads and the ranks; ranks / --tp are the "
               "data-parallel ranks",
       .fallback = 1,
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .resume_text = "the state does not depend on it; steps have more or fewer tokens unless "
                      "--grad-accum changes as well",
       .quantity = "tensor ranks",
       .also_called = {"--tensor-parallel", "--tensor-parallel-size",
                       "--tensor-model-parallel-size", "--tp-size"},
       .implied_value = [](const Resolution<P>& r) { return fitting_tensor_ranks(r); },
       .verify = [](const Resolution<P>& r) { return check_tensor_ranks(r); }},
      {.flag = "--sequence-parallel",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.sequence_parallel); },
       .help =
           "with --tp: spread the rows of the residual stream, of the norms and of dropout over "
           "the tensor ranks, for less memory and a little more traffic",
       .also_called = {"--sp", "--use-sequence-parallel", "--enable-sequence-parallel"},
       .implied_value = [](const Resolution<P>& r) { return fitting_sequence_parallel(r); },
       .verify = [](const Resolution<P>& r) { return check_sequence_parallel(r); }},
      {.flag = "--zero",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.zero); },
       .unit = "STAGE",
       .help = "ZeRO: ranks divide nothing (0), the optimizer state (1), also gradients (2), or "
               "also weights (3); no effect with one rank",
       .fallback = 1,
       .range = between(0, 3),
       .quantity = "ZeRO stage",
       .also_called = {"--zero-stage", "--fsdp", "--sharding-strategy"}},
      {.flag = "--shard-group",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.shard_group); },
       .unit = "RANKS",
       .help = "number of data-parallel ranks, neighbours, that divide one training state; groups "
               "hold equal states; must divide ranks / --tp; 0 means all of them",
       .fallback = 0,
       .range = at_least(0),
       .quantity = "shard group",
       .also_called = {"--hybrid-shard", "--hsdp"},
       .implied_value = [](const Resolution<P>& r) { return fitting_shard_group(r); },
       .verify = [](const Resolution<P>& r) { return check_shard_group(r); }},
      {.flag = "--comm",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.comm); },
       .help = "library that connects ranks; auto selects NCCL if every rank has a GPU of its own, "
               "else MPI",
       .fallback = SettingValue("auto"),
       .on_resume = OnResume::process,
       .quantity = "communication",
       .also_called = {"--distributed-backend", "--ddp-backend"}},
      {.flag = "--verify-every",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.verify_every); },
       .unit = "STEPS",
       .help = "steps between checks that all ranks hold equal copies of the loss, the weights and "
               "the optimizer state; a difference ends the run; 0 disables the checks",
       .fallback = 0,
       .range = at_least(0)},
  };
}

// The flags that print a plan instead of running it.
template <class P>
Settings<P> plan_rows() {
  return {
      {.flag = "--print-mesh",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.print_mesh); },
       .help = "print the place and the groups of every rank, and exit",
       .on_resume = OnResume::process},
      {.flag = "--dry-run",
       .field = [](auto& s) -> decltype(auto) { return (s.ranks.dry_run); },
       .help = "print the memory of each rank and the bytes that it sends per step, and exit; no "
               "text is read",
       .on_resume = OnResume::process,
       .also_called = {"--estimate-memory", "--plan"}},
  };
}

}  // namespace llmc

#pragma GCC diagnostic pop
