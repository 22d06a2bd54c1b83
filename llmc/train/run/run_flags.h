// The flags that alter what a run computes, with defaults filled in. A checkpoint keeps them, so
// that a run that goes on with others can say which.
#pragma once

#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/train/run/run_plan.h"

namespace llmc {

// Flag -> value. What may not change at all is not here (resuming.h), nor are the data
// (RunPosition) and what a run only writes.
inline CheckpointState run_flags(const TrainSettings& settings, const RunPlan& plan) {
  CheckpointState flags = {{"--batch-size", plan.shape.B},
                           {"--grad-accum", plan.grad_accum},
                           {"--logits-rows", plan.shape.logits_rows},
                           {"--document-mask", settings.document_mask},
                           {"--steps", plan.steps},
                           {"--lr", plan.schedule.peak},
                           {"--warmup", plan.schedule.warmup},
                           {"--schedule", settings.schedule},
                           {"--final-lr", plan.schedule.final_fraction},
                           {"--weight-decay", plan.weight_decay},
                           {"--beta1", settings.beta1},
                           {"--beta2", settings.beta2},
                           {"--eps", settings.eps},
                           {"--clip", settings.clip},
                           {"--embedding-dropout", plan.dropout.embedding},
                           {"--attention-dropout", plan.dropout.attention},
                           {"--residual-dropout", plan.dropout.residual},
                           {"--stochastic-rounding", settings.stochastic_rounding},
                           {"--attention", settings.attention},
                           {"--tf32", settings.tf32}};
  if (plan.schedule.decay == Decay::wsd) flags["--decay-fraction"] = decay_fraction(settings);
  if (settings.dtype == "fp16") flags["--loss-scale-window"] = plan.loss_scale_window;
  return flags;
}

// What a person should know: "--lr was 0.0006, it is 0.0003 now" for each flag that both have.
inline std::vector<std::string> changed_flags(const CheckpointState& before,
                                              const CheckpointState& now) {
  std::vector<std::string> notes;
  for (const auto& [flag, value] : now) {
    const auto found = before.find(flag);
    if (found == before.end() || found->second == value) continue;
    notes.push_back(flag + " was " + scalar_json(found->second).dump() + ", it is " +
                    scalar_json(value).dump() + " now");
  }
  return notes;
}

}  // namespace llmc
