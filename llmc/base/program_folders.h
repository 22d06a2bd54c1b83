// Where files that come with a program are.
#pragma once

#include <filesystem>
#include <vector>

namespace llmc {

// The current folder, that of the program, and the repository if the program was built in it.
std::vector<std::filesystem::path> program_folders();

}  // namespace llmc
