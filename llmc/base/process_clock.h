// The time since the start of this process.
#pragma once

namespace llmc {

// Seconds since the kernel started the process. A program that replaces itself by exec, as
// select_device does, is the same process. Throws if /proc cannot be read.
double seconds_since_process_start();

}  // namespace llmc
