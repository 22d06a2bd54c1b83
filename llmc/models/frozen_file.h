// The file or directory from which a run has the values of its frozen parameters. A run in half
// precision keeps them only rounded, and exports them as they were.
#pragma once

#include <filesystem>
#include <optional>

#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

class FrozenFile {
 public:
  // Opens it, on the rank that reads files. It stays readable if it is deleted.
  FrozenFile(const std::filesystem::path& path, StoredHead head, bool first_rank) {
    if (!first_rank) return;
    if (is_llmc_model_file(path)) {
      llmc_.emplace(path);
    } else {
      huggingface_.emplace(path, head);
    }
  }

  // Reads spec.size() numbers on that rank.
  void load(const ParameterSpec& spec, float* values) const {
    if (llmc_) llmc_->load(spec.name, spec.shape, values);
    if (huggingface_) huggingface_->load(spec.name, spec.shape, values);
  }

 private:
  std::optional<LlmcModelFile> llmc_;
  std::optional<HuggingFaceWeights> huggingface_;
};

}  // namespace llmc
