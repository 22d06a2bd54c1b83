// Streams order work, events order streams:
//   stream.synchronize()       the host waits for all work submitted so far
//   event.record(stream)       marks a point in the stream
//   stream.wait(event)         later work of this stream follows that point
//   event.synchronize()        the host waits for that point
//   milliseconds_between(a, b)
//   stream.profile(profiler)   from now on its operations are timed; null: not (profiler.h)
#pragma once

#ifdef __CUDACC__
#include "llmc/device/cuda/stream.h"
#else
#include "llmc/device/host/stream.h"
#endif
