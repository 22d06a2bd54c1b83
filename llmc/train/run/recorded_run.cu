#include <string>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/config/relocation.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/data/source_list.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/run/newest_checkpoint.h"
#include "llmc/train/run/recorded_run.h"

namespace llmc {

namespace {

// The settings in a checkpoint's state, with names of files that lead to them from here. Older
// programs recorded fewer flags, and some values under other names.
CheckpointState settings_of(const CheckpointState& state, const std::string& out) {
  CheckpointState flags;
  for (const auto& [key, name] : {std::pair("--seed", "seed"), std::pair("--dtype", "dtype"),
                                  std::pair("--seq-len", "seq_len")}) {
    if (const auto value = state.find(name); value != state.end()) flags[key] = value->second;
  }
  for (const auto& [key, value] : state) {
    if (key.starts_with("--")) flags[current_name(key)] = value;
  }
  const auto directory = state.find("directory"), old_out = state.find("out");
  if (directory == state.end() || old_out == state.end()) return flags;
  return relocated(flags, {.directory = directory->second.text("directory"),
                           .out = old_out->second.text("out"),
                           .new_out = out});
}

// Throws if a source of --train or --val, as the checkpoint records it, is not there.
void require_sources(const RecordedRun& run, const std::string& flag,
                     const std::optional<std::string>& typed,
                     const std::optional<std::string>& recorded) {
  if (typed || !recorded) return;
  for (const std::string& name : parse_source_list(*recorded, flag, true).names) {
    if (leads_to_file(name)) continue;
    fail(run.checkpoint.string() + " records " + flag + " " + *recorded + ", and " + name +
             " is not there",
         "give " + flag + " with its present place");
  }
}

// Throws unless the flags say what to train on if --out has no checkpoint: a mistyped --out must
// not start a new run.
void require_new_run(const Request& typed) {
  const std::string& out = *typed.output.out;
  if (names_training_data(typed)) {
    Notice::warn("resume: there is no valid checkpoint in " + out +
                 ", so a new run starts at step 0");
    return;
  }
  std::error_code ignored;
  fail("--resume: there is no " +
           std::string(std::filesystem::exists(out, ignored) ? "valid checkpoint in --out "
                                                             : "directory --out ") +
           out + did_you_mean_path(out),
       "check the name; with --train, a new run starts there");
}

// Throws if --task is typed and not that of the run. Another task could not read the run's data, so
// this is an error before the data are read.
void require_same_task(const RecordedRun& run, const Request& typed) {
  const Task recorded = run.settings.task.kind.value_or(Task::lm);
  const Task requested = typed.task.kind.value_or(recorded);
  if (requested == recorded) return;
  fail_usage(run.checkpoint.string() + " was written with --task " + choice_name(recorded) +
                 ", not " + choice_name(requested),
             "leave --task out, or give another --out");
}

// Reads what the run needs to know of a checkpoint in --out.
RecordedRun read_recorded_run(const Request& typed, const std::filesystem::path& checkpoint) {
  const CheckpointReader reader(checkpoint);
  RecordedRun run{.checkpoint = checkpoint, .step = reader.step()};
  run.shape = read_pretrained_shape(run.checkpoint);
  run.flags = settings_of(reader.state(), *typed.output.out);
  run.settings = recorded_request(run.flags);
  require_same_task(run, typed);
  const std::string& train = reader.state("train").text("train");
  const bool names_data = names_training_data(typed) || names_training_data(run.settings);
  if (!names_data && train != kToyTextName) {
    fail(run.checkpoint.string() + " does not record where its training text " + train + " is",
         "give --train: an older program wrote the checkpoint, or the file's name is not UTF-8");
  }
  require_sources(run, "--train", typed.data.train, run.settings.data.train);
  require_sources(run, "--val", typed.data.val, run.settings.data.val);
  return run;
}

}  // namespace

std::optional<RecordedRun> find_recorded_run(const Request& typed, Exchange& exchange) {
  if (!typed.output.resume.value_or(false)) return std::nullopt;
  exchange.together([&] {
    if (typed.schedule.steps != 0) return;
    fail_usage("--steps 0 with --resume: an evaluation does not continue a run",
               "evaluate a checkpoint with --init-from " + *typed.output.out + " --steps 0");
  });
  const auto newest = find_verified_checkpoint(*typed.output.out, exchange);
  std::optional<RecordedRun> run;
  exchange.together([&] {
    if (newest) {
      run = read_recorded_run(typed, newest->path);
      run->stamps = newest->stamps;
    } else if (exchange.first()) {
      require_new_run(typed);
    }
  });
  return run;
}

namespace {

// If a flag names the --out of a run, it becomes the run's newest valid checkpoint, which all ranks
// verify together. It is added to `verified`.
void resolve_run(const std::string& flag, std::optional<std::string>& path, Exchange& exchange,
                 std::vector<VerifiedCheckpoint>& verified) {
  std::string run;
  exchange.together([&] {
    if (exchange.first() && path && is_run_directory(*path)) run = *path;
  });
  run = exchange.broadcast(run);
  if (run.empty()) return;
  const auto newest = find_verified_checkpoint(run, exchange);
  if (!newest) return;  // resolve_weights() reports that there is none
  path = newest->path.string();
  verified.push_back(*newest);
  Notice::print(flag + ": " + *path + ", the newest valid checkpoint of " + run);
}

// The checkpoint of a run with an adapter has only that: it needs the model, too.
void resolve_weights(Request& typed, const std::optional<RecordedRun>& resumed) {
  std::optional<std::string>& model = typed.model.init_from;
  std::optional<std::string>& adapter = typed.finetune.adapter;
  if (resumed && !is_adapter_directory(resumed->checkpoint)) return model.reset();
  if (resumed) adapter.reset();
  if (adapter) adapter = find_adapter("--adapter", *adapter);
  if (model) {
    model = find_float_model("--init-from", *model);
  } else if (resumed) {
    const std::string recorded = resumed->settings.model.init_from.value_or("");
    std::error_code ignored;
    if (std::filesystem::exists(recorded, ignored)) return;
    fail(resumed->checkpoint.string() + " is an adapter of " + recorded + ", which is not there",
         "give --init-from with its present place");
  } else if (adapter) {
    model = find_float_model("--init-from", find_adapter_base("--init-from", *adapter));
  }
}

}  // namespace

std::string adapter_of(const RunConfig& config, const std::optional<RecordedRun>& resumed) {
  if (!resumed) return config.finetune.adapter;
  return is_adapter_directory(resumed->checkpoint) ? resumed->checkpoint.string() : "";
}

Request known_flags(Request& typed, const std::optional<RecordedRun>& resumed, Exchange& exchange,
                    std::vector<VerifiedCheckpoint>& verified) {
  if (!resumed || is_adapter_directory(resumed->checkpoint)) {
    resolve_run("--init-from", typed.model.init_from, exchange, verified);
    if (!resumed) resolve_run("--adapter", typed.finetune.adapter, exchange, verified);
  }
  Request known;
  exchange.together([&] {
    resolve_weights(typed, resumed);
    known = resumed ? with_recorded(typed, resumed->settings) : typed;
    const std::string error =
        requirement_error(train_settings(), typed,
                          [&](const Setting<TrainProgram>& row) { return is_given(row, known); });
    if (!error.empty()) fail_usage(error);
  });
  return known;
}

}  // namespace llmc
