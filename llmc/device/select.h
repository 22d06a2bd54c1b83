// Selects the device at program start. If the choice is auto and no GPU is usable, a CUDA build
// prints a message and exec()s the host build next to it (build/cuda/NAME and build/host/NAME).
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/properties.h"
#include "llmc/device/target.h"

namespace llmc {

// `wanted` is auto, cuda or host. Returns if this build matches it; otherwise exec()s the host
// build, or throws.
inline void select_device(const std::string& wanted, char** argv) {
  if (!kCudaTarget) {
    if (wanted == "cuda") {
      fail(quantity("device") + " cuda: this is the host build",
           "run a build that was made where nvcc is");
    }
    return;
  }
  std::string why_not;
  if (wanted != "host" && device_available(&why_not)) return;
  if (wanted == "cuda") {
    fail(quantity("device") + " cuda: no GPU can be used: " + why_not,
         quantity("device") + " host");
  }
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path other = self.parent_path().parent_path() / "host" / self.filename();
  if (wanted == "auto") {
    std::cerr << self.filename().string() << ": no GPU can be used (" << why_not
              << "), running the host build on the CPU\n";
  }
  execv(other.c_str(), argv);
  fail("the host build " + other.string() + " cannot be started: " + std::strerror(errno),
       "make builds it");
}

}  // namespace llmc
