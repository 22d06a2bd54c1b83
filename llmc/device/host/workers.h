// The threads of the host executor.
#pragma once

#include "llmc/base/threads.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/worker_pool.h"

namespace llmc {

// TSan already treats every CUDA thread as a separate thread, so one OS thread is enough.
inline WorkerPool& workers() {
  static WorkerPool pool(host::kThreadSanitizer ? 1 : static_cast<int>(cpu_threads()));
  return pool;
}

}  // namespace llmc
