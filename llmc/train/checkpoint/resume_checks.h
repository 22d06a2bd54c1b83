// Compares a resumed run with its checkpoint: checks what must be equal, and notes what changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/run_position.h"

namespace llmc {

// Checksum of the decoded bytes of every token id, independent of the files the tokenizer was read
// from.
std::string vocabulary_checksum(const Tokenizer& tokenizer);

// Throws if the vocabulary of the checkpoint is not ours. Equal vocabulary sizes would hide the
// difference. An empty `saved` (unknown) passes.
void check_same_vocabulary(const std::filesystem::path& checkpoint, const std::string& saved,
                           const std::string& ours, const std::string& tokenizer);

// Converts the position of a run with another sequence length or another text. `current` is the
// position at step 0 with the current data and settings. Returns notes about all changes. If the
// sequence length changes, the new number of samples is the smallest that covers the tokens used
// so far. (A new batch size changes nothing: the position counts sequences, not batches.) If the
// validation losses are no longer comparable, the lowest one is forgotten.
std::vector<std::string> adapt_position(RunPosition& position, const RunPosition& current);

}  // namespace llmc
