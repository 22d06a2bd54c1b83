// Rules and checks of the ranks of a run: tensor groups, pipelines and shard groups.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "llmc/config/model_rules.h"
#include "llmc/config/setting.h"

namespace llmc {

// ---- texts ----

// "use one of 1, 2, 4": the divisors of `number` up to `max`, of those that divide `other` too.
std::string divisors_hint(std::int64_t number, std::int64_t other = 0,
                          std::int64_t max = std::numeric_limits<std::int64_t>::max());

// ---- tensor groups ----

// Whether the sizes of the model are known to rows below its own. --print-mesh knows no model.
inline bool has_model(const TrainResolution& r) {
  return !r.request.ranks.print_mesh.value_or(false);
}

// The number of tensor ranks that --tp implies in a resumed run: the largest one with which the
// recorded --tp and the present number of ranks, or of ranks / a typed --pp, can be divided.
std::optional<SettingValue> fitting_tensor_ranks(const TrainResolution& r);

// Each tensor rank computes whole heads. The settings of the model must be known.
void check_tensor_ranks(const TrainResolution& r);

// Off, if it is not typed and there is only one tensor rank.
std::optional<SettingValue> fitting_sequence_parallel(const TrainResolution& r);

void check_sequence_parallel(const TrainResolution& r);

// ---- pipelines ----

// The number of pipeline ranks that --pp implies in a resumed run: the largest one with which the
// recorded --pp and the present number of tensor groups can be divided.
std::optional<SettingValue> fitting_pipeline_ranks(const TrainResolution& r);

// The value of --pp, for rows above its own too.
std::int64_t pipeline_ranks_of(const TrainResolution& r);

// Each pipeline rank has at least one layer, and all have the same number of ranks. The settings of
// the model must be known.
void check_pipeline_ranks(const TrainResolution& r);

// One chunk, if the recorded number is impossible in the resumed run.
std::optional<SettingValue> fitting_pipeline_chunks(const TrainResolution& r);

void check_pipeline_chunks(const TrainResolution& r);

// As even as possible, if the recorded numbers are not one per stage of the resumed run.
std::optional<SettingValue> fitting_pipeline_layers(const TrainResolution& r);

void check_pipeline_layers(const TrainResolution& r);

void check_pipeline_schedule(const TrainResolution& r);

void check_dump_schedule(const TrainResolution& r);

// ---- data-parallel ranks ----

// The number of ranks that train on different samples: each stands for a pipeline of tensor groups.
// The settings of the model must be known.
std::int64_t data_ranks_of(const TrainResolution& r);

// "--tp 2", "--pp 2" or "(--tp 2 x --pp 2)": the flags above 1 that divide the ranks of a run into
// those that train on different samples; empty if there are none.
std::string divisor_flags(const TrainResolution& r);

// All data-parallel ranks, if a recorded shard group does not divide their present number.
std::optional<SettingValue> fitting_shard_group(const TrainResolution& r);

void check_shard_group(const TrainResolution& r);

}  // namespace llmc
