// launch(kernel, Grid{x, y, z}, block_threads, shared_bytes, stream, arguments...) is the only way
// to start a kernel. An empty grid launches nothing.
#pragma once

#include "llmc/device/grid.h"
#include "llmc/device/stream.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/launch.h"
#else
#include "llmc/device/host/launch.h"
#endif
