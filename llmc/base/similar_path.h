// Finds the file or directory that a mistyped path means.
#pragma once

#include <filesystem>
#include <string>

namespace llmc {

// "; did you mean data/text.txt?" for a path that does not exist, from the names in the directory
// in which its first missing part is searched. Empty if no name is near, if the rest of the path
// does not exist under it, or if the directory cannot be read.
std::string did_you_mean_path(const std::filesystem::path& path);

}  // namespace llmc
