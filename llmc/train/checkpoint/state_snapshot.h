// The part of a run's state that this rank writes into a checkpoint, in host memory: training can
// change the state while the snapshot is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/io/checkpoint/checkpoint_files.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/parallel/run_state.h"
#include "llmc/parallel/save_plan.h"
#include "llmc/train/checkpoint/training_checkpoint.h"

namespace llmc {

class StateSnapshot {
 public:
  // All ranks call this together. The state and the files of the options must outlive the object.
  StateSnapshot(RunState& state, const CheckpointOptions& options, const HuggingFaceConfig& config,
                Stream& stream);

  // Writes the files of this rank into the directory of an unfinished checkpoint. Needs no other
  // rank, and can run on a thread of its own. Throws an ElementError if weights or moments are not
  // finite, or if the dtype cannot hold a weight: a run cannot continue from them.
  std::vector<ManifestFile> write(const std::filesystem::path& directory);

  // Bytes that write() has written so far, and all.
  std::int64_t written() const { return written_; }
  std::int64_t bytes() const { return bytes_; }

  const SavePlan& plan() const { return plan_; }
  // Only the times of this rank; write_ms is 0 before the end of write().
  const SaveTimes& times() const { return times_; }

 private:
  struct SavedTensor {
    Slice slice;
    const ParameterSpec* spec;
    std::vector<float> values;  // of a weight that comes from the frozen file: none
  };

  void collect_weights(Stream& stream);
  void collect_adapter(Stream& stream);
  void copy_moments(Stream& stream);
  void write_weights(CheckpointFiles& files);
  void write_adapter(CheckpointFiles& files);
  void write_moments(CheckpointFiles& files);
  void write(SafetensorsWriter& file, const SavedTensor& tensor, bool is_weight);
  template <class Writers>
  std::string own_name(const std::string& stem, const Writers& writers) const;
  bool is_from_file(const ParameterSpec& spec) const {
    return frozen_ != nullptr && !spec.trainable;
  }
  bool writes(int writer) const { return state_.ranks().rank() == writer; }

  RunState& state_;
  const FrozenFile* frozen_;
  SavePlan plan_;
  std::vector<SavedTensor> weights_, moments_;
  std::vector<AdapterTensor> adapter_tensors_;
  std::map<std::string, std::vector<float>> adapter_;  // by name; on rank 0
  SaveTimes times_;
  std::int64_t bytes_ = 0;
  std::atomic<std::int64_t> written_ = 0;
};

}  // namespace llmc
