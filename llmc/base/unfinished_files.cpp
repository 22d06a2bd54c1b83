#include "llmc/base/unfinished_files.h"

#include <chrono>
#include <system_error>

namespace llmc {

void UnfinishedFiles::remove_all() {
  if (!registry().mutex.try_lock_for(std::chrono::seconds(1))) return;
  for (const std::filesystem::path& path : registry().paths) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
}

UnfinishedFiles::Registry& UnfinishedFiles::registry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace llmc
