// The names of files and tensors in checkpoints of a run, and the counters next to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/manifest.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/save_plan.h"
#include "llmc/train/run_position.h"

namespace llmc {

// The moments have the names of their parameters after these prefixes.
inline constexpr const char *kFirstMoment = "first_moment.", *kSecondMoment = "second_moment.";

// The key of a checkpoint's state for RunPosition::protected_checkpoint.
inline constexpr const char* kProtectedKey = "protected_checkpoint";

// "model-00002-of-00004.safetensors" for index 1 of 4 files, "model.safetensors" for a single one.
std::string tensor_file_name(const std::string& stem, std::size_t index, std::size_t count);

// transformers' index of weights in several files, model.safetensors.index.json.
std::string weights_index_text(const SavePlan& plan);

// The counters and the settings of the run in the manifest of a checkpoint in `root`.
CheckpointState saved_counters(const std::filesystem::path& root, const RunPosition& position,
                               std::uint64_t seed, Dtype dtype, const OptimizerState& optimizer,
                               bool only_best);

}  // namespace llmc
