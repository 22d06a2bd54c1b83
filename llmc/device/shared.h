// A block's shared memory. Every thread of a kernel takes the same pieces in the same order; the
// launcher adds up their sizes with SharedLayout.
#pragma once

#include "llmc/device/shared_layout.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/shared.h"
#else
#include "llmc/device/host/shared.h"
#endif
