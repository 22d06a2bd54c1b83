// The run in --out, as its newest checkpoint records it. With --resume, a run is read once, before
// its settings are resolved: the checkpoint sets every flag that is not typed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/config/model_config.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/train/run/newest_checkpoint.h"

namespace llmc {

// Name of the text in the checkpoints of runs without --train.
inline constexpr const char* kToyTextName = "the toy language";

struct RecordedRun {
  std::filesystem::path checkpoint;
  FileStamps stamps = {};  // of its files when they were verified
  std::int64_t step = 0;
  ModelConfig shape = {};      // of the model
  CheckpointState flags = {};  // recorded settings, by their current names
  Request settings = {};       // the same, as if they had been typed
};

// Returns the run that --resume continues: the newest valid checkpoint in --out, as all ranks agree
// on it (newest_checkpoint.h). Empty without --resume, and if there is none but --train is typed,
// which starts a new run. Reports damaged checkpoints.
std::optional<RecordedRun> find_recorded_run(const Request& typed, Exchange& exchange);

// The directory of the adapter that a run begins with: that of the resumed checkpoint, or of
// --adapter; empty if it has none, or a new one.
std::string adapter_of(const RunConfig& config, const std::optional<RecordedRun>& resumed);

// The flags that are typed or recorded. Also sets --init-from to the directory of the weights; a
// checkpoint has weights of its own, unless it is an adapter. Throws if a typed flag needs another
// one that is neither. All ranks call this together. Adds the checkpoints of other runs that the
// flags name to `verified`: of their files, nothing may change until they are loaded.
Request known_flags(Request& typed, const std::optional<RecordedRun>& resumed, Exchange& exchange,
                    std::vector<VerifiedCheckpoint>& verified);

}  // namespace llmc
