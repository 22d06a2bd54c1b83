// Saves and loads the state of a run. Rank 0 writes the tensors, one at a time, and the other ranks
// send their parts to it; each rank reads its own part. The fp32 master weights are stored in
// a Hugging Face directory, the moments next to them with the same names after a prefix, the
// counters in the manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/checkpoint/adapter_config.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/models/frozen_file.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/save_plan.h"
#include "llmc/train/checkpoint/save_times.h"
#include "llmc/train/run_position.h"

namespace llmc {

inline constexpr const char* kMomentsName = "optimizer.safetensors";

// The parts of a checkpoint that are not the state.
struct CheckpointOptions {
  std::vector<TextFile> texts = {};
  bool only_best = false;              // it is saved only because of its validation loss
  const FrozenFile* frozen = nullptr;  // where frozen parameters are copied from; null: the state
  // With an adapter, only that is saved, in the files of PEFT (io/checkpoint/adapter_files.h).
  const AdapterConfig* adapter = nullptr;
  // If all ranks write: bytes of weights from which on one more rank writes some of them.
  std::int64_t writer_share = kWriterShare;
  SaveTimes* times = nullptr;  // of save_checkpoint() on this rank, or null
};

// Writes ROOT/step_NNNNNN. Returns its path. All ranks call this; rank 0 writes. Throws
// an ElementError on rank 0, and writes nothing, if weights or moments are not finite.
std::string save_checkpoint(const std::filesystem::path& root, const HuggingFaceConfig& config,
                            const RunPosition& position, std::uint64_t seed, RunState& state,
                            Stream& stream, const CheckpointOptions& options = {});

// Fills `state` from a checkpoint and returns its position. Each rank reads what it keeps, whatever
// layout wrote the checkpoint; call state.restore_rounding() when all have. Weights are left as
// they are if the state has adapters: load_adapter() loads those. Throws if seed or dtype differ,
// and if weights or moments are not finite or a second moment is negative. `bytes_read`, unless
// null: of tensors, by this rank.
RunPosition load_checkpoint(const std::filesystem::path& path, std::uint64_t seed, RunState& state,
                            Stream& stream, std::int64_t* bytes_read = nullptr);

}  // namespace llmc
