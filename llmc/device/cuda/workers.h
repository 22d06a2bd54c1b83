// The threads for work of the host next to a GPU.
#pragma once

#include "llmc/base/threads.h"
#include "llmc/device/worker_pool.h"

namespace llmc {

inline WorkerPool& workers() {
  static WorkerPool pool(static_cast<int>(cpu_threads()));
  return pool;
}

}  // namespace llmc
