// The durations of a save.
#pragma once

#include <chrono>

namespace llmc {

// Milliseconds of a save: until tensors that no rank has whole are gathered, until the others are
// in host memory, and until the files are durable.
struct SaveTimes {
  double gather_ms = 0, copy_ms = 0, write_ms = 0;
};

// Adds the duration of work() to `ms`.
template <class Work>
void add_time(double& ms, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace llmc
