// A checkpoint that all ranks write while training continues. Each rank takes a snapshot of its
// part and writes it on a thread of its own, into a directory that rank 0 has created. Rank 0
// writes the manifest and gives the directory its name when all ranks have reported that their
// files are durable. The directory must be on a disk that all ranks share.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "llmc/comm/exchange.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/train/checkpoint/state_snapshot.h"
#include "llmc/train/checkpoint/training_checkpoint.h"

namespace llmc {

class BackgroundSave {
 public:
  // All ranks call this together, and throw the same error. As save_checkpoint(); the state, the
  // exchange, and the files of the options must outlive the object.
  BackgroundSave(const std::filesystem::path& root, const HuggingFaceConfig& config,
                 const RunPosition& position, std::uint64_t seed, RunState& state, Stream& stream,
                 CheckpointOptions options, Exchange& exchange);
  // Waits until the thread ends. Without finish(), nothing is saved.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Whether finish() would not wait for long: all ranks have written their files, or one has
  // failed. All ranks call this together.
  bool is_written();

  // Waits until all files are durable, and gives the checkpoint its name. Reports progress if that
  // takes long. All ranks call this together, once, and throw the same error if one has failed: an
  // ElementError if weights or moments are not finite.
  void finish();

  const RunPosition& position() const { return position_; }
  // The final directory of the checkpoint.
  const std::filesystem::path& path() const { return path_; }
  // The longest times of all ranks; after finish().
  const SaveTimes& times() const { return times_; }

 private:
  void write();
  void wait();
  void commit(const std::vector<std::string>& entries);

  std::filesystem::path root_, path_;
  HuggingFaceConfig config_;
  RunPosition position_;
  std::uint64_t seed_;
  Dtype dtype_;
  CheckpointOptions options_;
  Exchange& exchange_;
  OptimizerState optimizer_{};
  std::optional<CheckpointWriter> writer_;  // on rank 0; destroyed after the thread has ended
  std::filesystem::path directory_;         // of the unfinished checkpoint
  std::unique_ptr<StateSnapshot> snapshot_;
  SaveTimes times_;
  std::vector<ManifestFile> entries_;  // of this rank's files
  std::exception_ptr failure_;         // of the thread
  enum class State { writing, written, failed };
  std::atomic<State> own_ = State::writing;
  std::thread thread_;  // last: it uses the others
};

}  // namespace llmc
