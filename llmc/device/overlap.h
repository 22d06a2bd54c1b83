// Launches that may start before the previous launch of their stream has ended (programmatic
// dependent launch, sm_90 and later; elsewhere they start after it). launch_overlapped() starts
// such a kernel. It must call wait_for_previous_launch() before it reads what earlier launches
// wrote, or writes what they read. What no launch writes, such as weights, may be read before.
#pragma once

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/overlap.h"
#else
#include "llmc/device/host/overlap.h"
#endif
