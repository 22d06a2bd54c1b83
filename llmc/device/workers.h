// The processors of the host as a pool of threads: WorkerPool& workers(), with cpu_threads()
// threads (base/threads.h). On the host target it also runs the kernels.
#pragma once

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/workers.h"
#else
#include "llmc/device/host/workers.h"
#endif
