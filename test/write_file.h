// Writes files with a given content.
#pragma once

#include <fstream>
#include <string>

namespace llmc_test {

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace llmc_test
