#include "test/ptx/library.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "llmc/base/error.h"
#include "test/ptx/decode.h"

namespace llmc_ptx {

Library::Library(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
    }
  }
  llmc::require(!paths.empty(), folder.string() + " has no files of PTX",
                "run make test DEVICE=ptx");
  std::ranges::sort(paths);
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    sources_.emplace_back(path.filename().string(),
                          std::string(std::istreambuf_iterator(file), {}));
  }
  for (const Source& source : sources_) {
    for (const std::string& kernel : source.kernels()) places_.try_emplace(kernel, &source);
  }
}

const Program* Library::find(const std::string& kernel) {
  const std::scoped_lock lock(mutex_);
  if (const auto known = programs_.find(kernel); known != programs_.end())
    return known->second.get();
  const auto place = places_.find(kernel);
  if (place == places_.end()) return nullptr;
  const Source& source = *place->second;
  return (programs_[kernel] = std::make_unique<Program>(decode(source.parse(kernel), source)))
      .get();
}

}  // namespace llmc_ptx
