// Collectives of a warp (32 lanes) and of a block; README.md lists them.
#pragma once

#include "llmc/device/thread.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/collectives.h"
#else
#include "llmc/device/host/collectives.h"
#endif
