// A block's shared memory. A kernel carves pieces off it in the same order in every thread; its
// launcher adds the same pieces up in a SharedLayout.
#pragma once

#include "llmc/device/shared_layout.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/shared.h"
#else
#include "llmc/device/host/shared.h"
#endif
