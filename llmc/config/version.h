// The text of --version.
#pragma once

#include <string>

#include "llmc/device/libraries.h"

namespace llmc {

// Where and with what a program computes: "host" or the GPUs, and the libraries of its products.
struct BuildText {
  std::string target, libraries;
};
inline BuildText this_build() {
  return {target_text(), compute_libraries_text()};
}

// The commit that this program was built from, with ", modified" if the sources were changed;
// "unknown" if they were no repository.
std::string commit_text();

// Four lines: version and commit, target, compiler, libraries.
std::string version_text(const std::string& program, const BuildText& build);

}  // namespace llmc
