// Graphs: work of a stream that is recorded once and launched many times, which costs the host much
// less than submitting it again.
//   graph.capture(stream, work)  records what work() submits to `stream`, instead of running it;
//                                replaces the previous recording
//   graph.launch(stream)         runs the recording; an Error if there is none
//   graph.nodes()                number of launches, copies, fills and library calls
//   graph.empty()                whether nothing is recorded
//
// Arguments of launches, and addresses and sizes of copies, are those at the capture. What varies
// between launches must be in device memory.
//
// An exception of work() ends the recording, the graph is then empty, and the exception is
// rethrown. work() must not allocate device memory, synchronise, use events of the stream or call
// run_on_host (an Error); its copies to and from the host need pinned memory. Kernels and matrix
// products should have run once before, because libraries and drivers allocate at their first use.
// Launch observers are called at the capture only, and no profiler times the work.
#pragma once

#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/graph.h"
#else
#include "llmc/device/host/graph.h"
#endif
