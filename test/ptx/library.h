// The kernels of the files of PTX in a folder, decoded when they are first used.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "test/ptx/program.h"
#include "test/ptx/source.h"

namespace llmc_ptx {

class Library {
 public:
  // Throws an Error if the folder has no PTX.
  explicit Library(const std::filesystem::path& folder);

  // Null if no file has the kernel, which has this mangled name.
  const Program* find(const std::string& kernel);

 private:
  std::vector<Source> sources_;
  std::map<std::string, const Source*> places_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Program>> programs_;
};

}  // namespace llmc_ptx
