#include "llmc/config/train_output_settings.h"

#include <cstdint>
#include <string>

#include "llmc/config/relocation.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/target.h"

// Each group is a struct with the values and a list of rows. Rules and checks that the rows call
// are in train_rules.h.
//
// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> sample_rows() {
  return {
      {.flag = "--eval-every",
       .field = [](auto& s) -> decltype(auto) { return (s.validation.every); },
       .unit = "STEPS",
       .help = "steps between computations of the validation loss; 0 disables them",
       .fallback = {"--steps / 10",
                    [](const Resolution<TrainProgram>& r) { return step_interval(r, 10); }},
       .range = at_least(0)},
      {.flag = "--eval-batches",
       .field = [](auto& s) -> decltype(auto) { return (s.validation.batches); },
       .unit = "BATCHES",
       .help = "micro-batches per validation during training; 0 uses all",
       .fallback = {"20; 0 unless --task is lm",
                    [](const Resolution<TrainProgram>& r) {
                      return r.config.task.kind == Task::lm ? 20 : 0;
                    }},
       .range = at_least(0),
       .verify = check_eval_batches},
      {.flag = "--sample-every",
       .field = [](auto& s) -> decltype(auto) { return (s.samples.every); },
       .unit = "STEPS",
       .help = "steps between text samples; 0 disables them",
       .fallback =
           {"--steps / 5; 0 for sequences of one token, and unless --task is lm",
            [](const Resolution<TrainProgram>& r) {  // a sample needs a prompt and one more token
              const bool has_prompt = r.config.task.kind == Task::lm && r.config.batch.seq_len > 1;
              return has_prompt ? step_interval(r, 5) : 0;
            }},
       .range = at_least(0)},
      {.flag = "--sample-length",
       .field = [](auto& s) -> decltype(auto) { return (s.samples.length); },
       .unit = "TOKENS",
       .help = "tokens to generate per text sample, at most as many as the sequence length allows",
       // A token of a subword tokenizer has about four bytes.
       .fallback = {"48; 200 for the byte tokenizer",
                    [](const Resolution<TrainProgram>& r) {
                      return r.facts.tokenizer == "bytes" ? 200 : 48;
                    }},
       .range = at_least(0),
       .special = {.old_names = {"--sample-tokens"}}},
      {.flag = "--prompt",
       .field = [](auto& s) -> decltype(auto) { return (s.samples.prompt); },
       .unit = "TEXT",
       .help = "text that every sample starts with",
       .fallback = "a line break",
       .special = {.empty_is_default = true,
                   .accepts_bare_word =
                       [](const std::string& word) { return word.find(' ') != word.npos; },
                   .word_separator = " "}},
      {.flag = "--final-samples-out",
       .field = [](auto& s) -> decltype(auto) { return (s.samples.final_out); },
       .unit = "FILE",
       .help = "write text sampled at the end of the run to this file",
       .special = {.old_names = {"--samples-out"}, .relocate = relocate_path}},
      {.flag = "--final-samples-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.samples.final_tokens); },
       .unit = "TOKENS",
       .help = "number of tokens in --final-samples-out, rounded up to whole batches",
       .fallback = 4096,
       .range = at_least(0),
       .required_flags = {"--final-samples-out"},
       .special = {.old_names = {"--samples-tokens"}}},
  };
}

Settings<TrainProgram> checkpoint_rows() {
  return {
      {.flag = "--out",
       .field = [](auto& s) -> decltype(auto) { return (s.output.out); },
       .unit = "DIR",
       .help = "directory for checkpoints; without it nothing is saved",
       .on_resume = OnResume::process},
      {.flag = "--checkpoint-every",
       .field = [](auto& s) -> decltype(auto) { return (s.output.checkpoint_every); },
       .unit = "STEPS",
       .help = "steps between checkpoints; 0 saves only at the end",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--out"}},
      {.flag = "--checkpoint-minutes",
       .field = [](auto& s) -> decltype(auto) { return (s.output.checkpoint_minutes); },
       .unit = "MINUTES",
       .help = "also save at the first step that ends this long after the last save; 0 means never",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--out"}},
      {.flag = "--save",
       .field = [](auto& s) -> decltype(auto) { return (s.output.save); },
       .help =
           "sync: rank 0 writes a checkpoint while training waits; async: each rank copies its "
           "part into host memory and writes it while training continues, which needs a disk that "
           "all ranks share",
       .fallback = {"async with several ranks, and on a GPU; otherwise sync",
                    [](const Resolution<TrainProgram>& r) {
                      const bool is_async = r.facts.ranks > 1 || kCudaTarget;
                      return SettingValue(std::string(is_async ? "async" : "sync"));
                    }},
       .required_flags = {"--out"},
       .on_resume = OnResume::process},
      {.flag = "--keep-checkpoints",
       .field = [](auto& s) -> decltype(auto) { return (s.output.keep_checkpoints); },
       .unit = "CHECKPOINTS",
       .help = "keep only this many of the newest checkpoints; 0 keeps all",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--out"},
       .special = {.old_names = {"--keep"}}},
      {.flag = "--milestone-every",
       .field = [](auto& s) -> decltype(auto) { return (s.output.milestone_every); },
       .unit = "STEPS",
       .help = "steps between checkpoints that --keep-checkpoints never removes; 0 means none",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--keep-checkpoints"}},
      {.flag = "--keep-best",
       .field = [](auto& s) -> decltype(auto) { return (s.output.keep_best); },
       .help = "save at each new lowest validation loss, and keep the checkpoint of the lowest "
               "whatever --keep-checkpoints removes; --keep-best=false does neither",
       .fallback = {"on if validation losses are computed",
                    [](const Resolution<TrainProgram>& r) {
                      return r.config.validation.every > 0;
                    }},
       .required_flags = {"--out"},
       .verify = [](const Resolution<TrainProgram>& r) { return check_keep_best(r); }},
      {.flag = "--keep-best-by",
       .field = [](auto& s) -> decltype(auto) { return (s.output.keep_best_by); },
       .help = "what --keep-best compares: the validation loss, or, with --task classify, the mean "
               "of the classes' F1",
       .fallback = SettingValue("loss"),
       .required_flags = {"--out"},
       .verify = check_keep_best_by},
      {.flag = "--resume",
       .field = [](auto& s) -> decltype(auto) { return (s.output.resume); },
       .help = "continue the run in --out from its newest valid checkpoint, which sets every flag "
               "that is not typed; with --train, a new run starts if there is none",
       .required_flags = {"--out"},
       .on_resume = OnResume::process},
  };
}

Settings<TrainProgram> output_rows() {
  return {
      {.flag = "--stop-after",
       .field = [](auto& s) -> decltype(auto) { return (s.output.stop_after); },
       .unit = "STEPS",
       .help = "save and exit after this many steps of this process; 0 means no limit",
       .fallback = 0,
       .range = at_least(0),
       .on_resume = OnResume::process},
      {.flag = "--stop-after-minutes",
       .field = [](auto& s) -> decltype(auto) { return (s.output.stop_after_minutes); },
       .unit = "MINUTES",
       .help = "save and exit, as after a stop signal, when the process is this old, but after at "
               "least one step; 0 means no limit",
       .fallback = 0,
       .range = at_least(0),
       .on_resume = OnResume::process},
      {.flag = "--log",
       .field = [](auto& s) -> decltype(auto) { return (s.output.log); },
       .unit = "FILE.jsonl",
       .help = "file for the run log, as JSON lines",
       .special = {.may_differ = "only rank 0 writes it, and scripts name it by the rank",
                   .relocate = relocate_path}},
      {.flag = "--log-ranks",
       .field = [](auto& s) -> decltype(auto) { return (s.output.log_ranks); },
       .help = "log the times and the CPU, GPU and memory use of each rank in every step: "
               "compute_ms_ranks, wait_ms_ranks, data_ms_ranks, cpu_percent_ranks, gpu_util_ranks, "
               "host_mem_mb_ranks and gpu_mem_mb_ranks",
       .required_flags = {"--log"},
       .on_resume = OnResume::process},
      {.flag = "--profile",
       .field = [](auto& s) -> decltype(auto) { return (s.output.profile); },
       .unit = "STEPS",
       .help =
           "number of steps to profile by operation, from the second step on; 0 disables profiling",
       .fallback = 0,
       .range = at_least(0),
       .on_resume = OnResume::process},
      {.flag = "--profile-out",
       .field = [](auto& s) -> decltype(auto) { return (s.output.profile_out); },
       .unit = "FILE.jsonl|FILE.json",
       .help = "also write the profile to this file: as JSON lines, or as FILE.json with the calls "
               "of the last profiled step, a trace for chrome://tracing and Perfetto",
       .required_flags = {"--profile"},
       .on_resume = OnResume::process,
       .special = {.may_differ = "only rank 0 writes it, and scripts name it by the rank"}},
      {.flag = "--quiet",
       .field = [](auto& s) -> decltype(auto) { return (s.output.quiet); },
       .help = "print only results, warnings and errors",
       .on_resume = OnResume::process,
       .special = {.may_differ = "only rank 0 prints notices"}},
  };
}

}  // namespace llmc
