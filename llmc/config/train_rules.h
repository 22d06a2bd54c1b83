// Rules and checks of the settings of a run that depend on each other: batches, steps and others.
// Those of the model and of ranks are in model_rules.h and rank_rules.h.
#pragma once

#include <cstdint>
#include <optional>

#include "llmc/config/model_rules.h"
#include "llmc/config/setting.h"

namespace llmc {

// Matrix-product libraries count the rows of a micro-batch in 32 bits.
void check_sequences(const TrainResolution& r);

// Default tokens per step on a GPU: the batch of 0.5M tokens of GPT-3 Small (Brown et al., 2020).
inline constexpr std::int64_t kGpuStepTokens = 524288;

// The default of --grad-accum: as many micro-batches as come closest to the default tokens per
// step, rounded up to a multiple of the pipeline ranks, which are idle with fewer.
std::int64_t default_grad_accum(const TrainResolution& r);

// The --total-batch-tokens of a resumed run, unless it was recorded and --grad-accum is typed,
// which replaces it.
std::optional<SettingValue> implied_total_tokens(const TrainResolution& r);

// The --grad-accum that --total-batch-tokens implies, if that is given or recorded.
std::optional<SettingValue> implied_grad_accum(const TrainResolution& r);

void check_step_tokens(const TrainResolution& r);

// The smallest number of steps that trains on `epochs` x `windows` sequences. Without source
// weights each window is then used `epochs` times; a few windows of the next epoch may be used too.
std::int64_t steps_of_epochs(double epochs, std::int64_t windows, std::int64_t global_batch);

// The --steps that --epochs implies, if that is given and the data are known.
std::optional<SettingValue> implied_steps(const TrainResolution& r);

// Steps between two events if a run has `count` of them; at least 1.
std::int64_t step_interval(const TrainResolution& r, std::int64_t count);

// The dropout probability of each part that --dropout implies, if that is given.
std::optional<SettingValue> implied_dropout(const TrainResolution& r);

// Half of a new --seq-len, if the --eval-stride of the resumed run is longer than that.
std::optional<SettingValue> implied_stride(const TrainResolution& r);

void check_keep_best(const TrainResolution& r);

void check_loss_scale(const TrainResolution& r);

}  // namespace llmc
