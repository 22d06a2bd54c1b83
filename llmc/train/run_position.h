// The position of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/history.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/model_card.h"

namespace llmc {

// The sources of training or validation data, and the hash of each (source_hash).
struct SourceHashes {
  std::vector<std::string> names = {};  // not in checkpoints
  std::string hashes = {};              // separated by commas; empty: unknown
};

// The knowledge that a resumed run needs in addition to tensors and OptimizerState.
struct RunPosition {
  std::int64_t step = 0;                        // number of steps done
  std::int64_t samples = 0;                     // sequences taken from the shuffled training text
  std::int64_t tokens = 0;                      // number of tokens trained on
  std::int64_t T = 0;                           // tokens in each of these sequences
  std::string train = {};                       // name of the training text
  std::optional<MeasuredLoss> validation = {};  // latest validation loss
  std::optional<MeasuredLoss> best = {};        // lowest validation loss after a step
  std::int64_t train_tokens = -1;               // tokens in the training text; -1: unknown
  SourceHashes train_data = {}, validation_data = {};
  std::string vocabulary = {};   // vocabulary_checksum; empty: unknown
  CheckpointState flags = {};    // recorded_settings
  TrainingHistory history = {};  // the stretch at the end includes the latest step
  bool finite_loss = true;       // whether the latest loss is finite
  // Name of the newest checkpoint from before the first loss that was not finite, which is never
  // removed; empty if all were, or if there was none. Only rank 0 sets it.
  std::string protected_checkpoint = {};
};

}  // namespace llmc
