// Compares between ranks what they have read: the checkpoint that a run resumes, data, tokenizer,
// weights, and the configuration that follows from them. Equal flags can name different files on
// different machines.
//
// Large files are compared by samples: sizes, 64 evenly spaced blocks, and the blocks at both ends.
// A difference between these blocks is not found.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "llmc/comm/exchange.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/eval/task.h"
#include "llmc/io/data/token_source.h"
#include "llmc/train/run/recorded_run.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/starting_weights.h"

namespace llmc {

namespace input_agreement_detail {

// Covers tokens, and where documents begin.
std::string sampled_checksum(const TokenSource& source);

// Covers whole rows.
std::string sampled_checksum(const EvalTask& task);

std::string sampled_checksum(const std::filesystem::path& path);

}  // namespace input_agreement_detail

// Throws on all ranks unless all have read the same checkpoint. Its manifest has checksums of all
// its files. All ranks call this together.
void require_equal_checkpoints(const std::optional<RecordedRun>& run, Exchange& exchange);

// Throws on all ranks unless all have read the same data and weights, and have the same
// configuration. All ranks call this together.
void require_equal_inputs(const RunConfig& config, const RunData& data,
                          const std::optional<StartingWeights>& weights, Exchange& exchange);

}  // namespace llmc
