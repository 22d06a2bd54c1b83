// The settings of train_gpt2: ranks, pipelines, ZeRO, and what is shown without a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

namespace llmc {

template <template <class> class Value>
struct RankSettings {
  Value<std::int64_t> ranks;
  Value<std::int64_t> tp;  // ranks that compute each layer together
  Value<bool> sequence_parallel;
  Value<std::int64_t> pp;                     // ranks that divide the layers
  Value<std::int64_t> pp_chunks;              // stages of each pipeline rank
  Value<std::vector<std::string>> pp_layers;  // of each stage; empty: as even as possible
  Value<std::string> pp_schedule;             // a file; empty: 1F1B or interleaved 1F1B
  Value<std::string> dump_schedule;           // a file; empty: none
  Value<std::int64_t> zero;                   // ZeRO stage
  Value<std::int64_t> shard_group;            // ranks that divide one training state; 0: all
  Value<MeshChoice> mesh;
  Value<CommChoice> comm;
  Value<double> heartbeat_timeout, comm_timeout;  // seconds
  Value<bool> check_links;                        // measure devices and links before the run
  Value<std::int64_t> verify_every;               // steps; 0: never
  Value<bool> print_mesh, dry_run, plan;
  Value<double> gpu_memory;                        // GiB, of a plan; 0: not given
  Value<std::string> machine, software, plan_out;  // of --plan; names or files
  Value<std::int64_t> top;                         // layouts that --plan ranks
  Value<double> tokens;                            // of the whole training; 0: not given
  Value<std::string> measure_machine;              // a file; empty: nothing is measured
};

// Returns an error for the name of a file whose ending is none of these, or an empty text.
inline std::string file_kind_error(const std::string& name,
                                   const std::vector<std::string>& endings) {
  std::string list;
  for (const std::string& ending : endings) {
    if (name.ends_with(ending)) return {};
    list += (list.empty() ? "" : ending == endings.back() ? " or " : ", ") + ending;
  }
  return "'" + name + "' does not end in " + list + ", the kinds of files that it writes";
}

// The same for values of --dump-schedule, and of --plan-out.
inline std::string dump_file_error(const std::string& name) {
  return file_kind_error(name, {".csv", ".html", ".json"});
}
inline std::string plan_file_error(const std::string& name) {
  return file_kind_error(name, {".csv", ".json"});
}
// And of --measure-machine.
inline std::string machine_file_error(const std::string& name) {
  return file_kind_error(name, {".json"});
}

// The rows; their texts and rules are in train_rank_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> rank_rows();
Settings<TrainProgram> pipeline_rows();
Settings<TrainProgram> zero_rows();
Settings<TrainProgram> plan_rows();

}  // namespace llmc
