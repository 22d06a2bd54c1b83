// Umbrella header of the device layer: everything that most kernels and launchers need. README.md
// in this directory is the overview.
#pragma once

#include "llmc/base/error.h"
#include "llmc/device/async_copy.h"
#include "llmc/device/atomics.h"
#include "llmc/device/block_threads.h"
#include "llmc/device/collectives.h"
#include "llmc/device/dtype.h"
#include "llmc/device/launch.h"
#include "llmc/device/math.h"
#include "llmc/device/memory.h"
#include "llmc/device/mma.h"
#include "llmc/device/overlap.h"
#include "llmc/device/philox.h"
#include "llmc/device/profiler.h"
#include "llmc/device/properties.h"
#include "llmc/device/shared.h"
#include "llmc/device/stream.h"
#include "llmc/device/target.h"
#include "llmc/device/tensor.h"
#include "llmc/device/thread.h"
#include "llmc/device/vec.h"
