#include "llmc/infer/new_model.h"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/checkpoint/generation_config.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "llmc/io/tokenizer/tokenizer_files.h"

namespace llmc {

namespace {

// Copies the files of the tokenizer, and the defaults of generation.
void copy_text_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::vector<const char*> names(kTokenizerFileNames.begin(), kTokenizerFileNames.end());
  names.push_back(kGenerationConfigName);
  std::error_code ignored;
  for (const char* name : names) {
    if (std::filesystem::is_regular_file(from / name, ignored)) {
      write_file(to / name, read_file(from / name));
    }
  }
}

}  // namespace

NewModel::NewModel(const std::string& command, const std::string& out) {
  std::error_code error;
  path_ = std::filesystem::weakly_canonical(std::filesystem::absolute(out), error);
  if (error) fail_file("examine", out, error.value());
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (!path_exists(path_)) return;
  const bool empty = std::filesystem::is_directory(path_, error) &&
                     std::filesystem::is_empty(path_, error) && !error;
  if (!empty) {
    fail(command + ": " + out + " exists and is not an empty directory",
         "give a new name; " + command + " overwrites nothing");
  }
}

const std::filesystem::path& NewModel::open(const std::string& source) {
  make_directory(path_.parent_path());
  remove_unfinished_directories(path_.parent_path(), path_.filename().string() + ".");
  pending_.emplace(path_);
  if (!is_llmc_model_file(source)) copy_text_files(source, pending_->path());
  return pending_->path();
}

void NewModel::commit() {
  // Replaces only an empty directory.
  if (::rename(pending_->path().c_str(), path_.c_str()) != 0) fail_file("name", path_, errno);
  pending_->release();
  sync_directory(path_.parent_path());
}

std::string float_config_text(const std::string& model, const HuggingFaceConfig& config) {
  if (is_llmc_model_file(model)) return huggingface_config_text(config, TensorDtype::f32);
  return read_file(std::filesystem::path(model) / kConfigName);
}

}  // namespace llmc
