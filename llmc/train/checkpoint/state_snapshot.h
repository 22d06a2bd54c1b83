// The part of a run's state that this rank writes into a checkpoint, in host memory: training can
// change the state while the snapshot is written. Moments that are on a disk are not copied into
// host memory, for which they may be too large: they are written at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
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
  // `directory` of an unfinished checkpoint.
  StateSnapshot(RunState& state, const CheckpointOptions& options, const HuggingFaceConfig& config,
                const std::filesystem::path& directory, Stream& stream);

  // Writes the files of this rank into the directory. Needs no other rank, and can run on a thread
  // of its own. Throws an ElementError if weights or moments are not finite, or if the dtype cannot
  // hold a weight: a run cannot continue from them.
  std::vector<ManifestFile> write();

  // Bytes that are written so far, and all; and those in host memory.
  std::int64_t written() const { return written_; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t host_bytes() const { return host_bytes_; }

  const SavePlan& plan() const { return plan_; }
  // Only the times of this rank; write_ms is 0 before the end of write(). Moments that are written
  // at once are part of copy_ms.
  const SaveTimes& times() const { return times_; }

 private:
  struct SavedTensor {
    Slice slice;
    const ParameterSpec* spec;
    std::vector<float> values;  // none if a file has them
  };

  void collect_weights(Stream& stream);
  void collect_adapter(Stream& stream);
  void list_moments();
  void copy_moments(Stream& stream);
  void write_moments_from_disk(Stream& stream);
  void write_weights();
  void write_adapter();
  void write_moments();
  SafetensorsWriter& moments_file();
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
  CheckpointFiles files_;
  std::vector<SavedTensor> weights_, moments_;
  std::vector<AdapterTensor> adapter_tensors_;
  std::map<std::string, std::vector<float>> adapter_;  // by name; on rank 0
  SaveTimes times_;
  std::int64_t bytes_ = 0, host_bytes_ = 0;
  std::exception_ptr failure_;  // to write moments at once; write() throws it
  std::atomic<std::int64_t> written_ = 0;
};

}  // namespace llmc
