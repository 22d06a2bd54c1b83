// Callback for every kernel launch and library call on a stream. `make resources` uses it to record
// block size and dynamic shared memory, which ptxas cannot know.
#pragma once

#include <cstddef>

namespace llmc {

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // `kernel` is the address of the kernel's function.
  virtual void on_launch(const void* kernel, int block_threads, std::size_t shared_bytes) = 0;
  // A call of a library that launches kernels of its own, such as a "matrix product".
  virtual void on_library_call(const char* /*name*/) {}
};

}  // namespace llmc
