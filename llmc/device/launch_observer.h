// Who is told of launches: reports of what kernels ask for at launch, which no compiler knows.
#pragma once

#include <cstddef>

namespace llmc {

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;

  // `kernel` is the address of the kernel's function.
  virtual void launched(const void* kernel, int block_threads, std::size_t shared_bytes) = 0;
};

}  // namespace llmc
