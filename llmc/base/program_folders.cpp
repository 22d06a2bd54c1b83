#include "llmc/base/program_folders.h"

#include <system_error>

namespace llmc {

std::vector<std::filesystem::path> program_folders() {
  std::error_code ignored;
  std::vector<std::filesystem::path> folders = {""};
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (program.empty()) return folders;
  folders.push_back(program);
  // A build is in build/TARGET of its repository.
  if (program.parent_path().filename() == "build") {
    folders.push_back(program.parent_path().parent_path());
  }
  return folders;
}

}  // namespace llmc
