// Asynchronous copies of 16 bytes from global to shared memory (cp.async, sm_80 and later).
#pragma once

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/async_copy.h"
#else
#include "llmc/device/host/async_copy.h"
#endif
