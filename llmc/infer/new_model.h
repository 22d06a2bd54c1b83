// A new directory with a model that is made from another one. It appears when it is complete.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/pending_directory.h"

namespace llmc {

class NewModel {
 public:
  // `out` is the directory. Throws if it exists and is not an empty directory; the error names the
  // command.
  NewModel(const std::string& command, const std::string& out);

  const std::filesystem::path& path() const { return path_; }

  // Creates the files' directory, which has a temporary name, and copies the tokenizer and the
  // defaults of generation of the model at `source` to it. Returns it.
  const std::filesystem::path& open(const std::string& source);

  // Gives the directory its name.
  void commit();

 private:
  std::filesystem::path path_;
  std::optional<PendingDirectory> pending_;
};

// config.json of the float model at `model`.
std::string float_config_text(const std::string& model, const HuggingFaceConfig& config);

}  // namespace llmc
