// Streams order work, events order streams:
//   stream.synchronize()       the host waits for all work submitted so far
//   event.record(stream)       marks a point in the stream
//   stream.idle()              whether all work submitted so far is complete; does not wait
//   stream.wait(event)         work submitted to this stream later runs after that point
//   event.synchronize()        the host waits for that point
//   event.has_passed(gpu)      whether that point is reached, on the GPU that the stream belongs to
//   milliseconds_between(a, b) time between the points of two events
//   run_on_host(stream, work)  calls work() when the stream reaches this point, before later work
//   native_stream(stream)      the stream for functions of NCCL; on the host an opaque pointer
//   stream.profile(profiler)   times later operations of the stream; null stops it (profiler.h)
#pragma once

#ifdef __CUDACC__
#include "llmc/device/cuda/stream.h"
#else
#include "llmc/device/host/stream.h"
#endif
