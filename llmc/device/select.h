// Selects the device at program start. If the choice is auto and no GPU is usable, a CUDA build
// prints a message and exec()s the host build next to it (build/cuda/NAME and build/host/NAME).
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/signal_thread.h"
#include "llmc/device/properties.h"
#include "llmc/device/target.h"

namespace llmc {

// `choice` is auto, cuda or host. Returns if this build matches it; otherwise exec()s the host
// build, or throws.
inline void select_device(const std::string& choice, char** argv) {
  if (!kCudaTarget) {
    if (choice == "cuda") {
      fail(quantity("device") + " cuda: this is the host build",
           "run the CUDA build (build/cuda), which needs nvcc");
    }
    return;
  }
  std::string reason;
  if (choice != "host" && device_available(&reason)) return;
  if (choice == "cuda") {
    fail(quantity("device") + " cuda: no GPU can be used: " + reason,
         "use " + quantity("device") + " host");
  }
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path host_build =
      self.parent_path().parent_path() / "host" / self.filename();
  if (choice == "auto") {
    Notice::print(self.filename().string() + ": no GPU can be used (" + reason +
                  "), running the host build on the CPU");
  }
  const SignalThread::Pause pause;  // the host build starts with the signals of this process
  execv(host_build.c_str(), argv);
  fail("the host build " + host_build.string() + " cannot be started: " + std::strerror(errno),
       "build it with make");
}

}  // namespace llmc
