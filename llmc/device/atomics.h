// Integer atomics with which the blocks of a launch agree who is the last.
#pragma once

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/atomics.h"
#else
#include "llmc/device/host/atomics.h"
#endif
