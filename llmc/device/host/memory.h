// Memory and copies of the host target. "Device" memory is ordinary memory; each new allocation is
// filled with a signalling NaN.
#pragma once

#include <cstddef>

#include "llmc/device/host/stream.h"

namespace llmc {

namespace host {

// Large allocations request huge pages. With small pages, the first use of a model causes half a
// million page faults, and every pass through it as many TLB misses.
void* allocate(std::size_t bytes);

// Freeing device memory waits for the device, as cudaFree does. Only TSan needs this: host streams
// run work immediately.
void release(void* memory, std::size_t);

// Both use the threads of the executor.
void copy(void* destination, const void* source, std::size_t bytes, Stream& stream);
void fill_zero(void* p, std::size_t bytes, Stream& stream);

}  // namespace host

namespace backend {

inline void* allocate_device(std::size_t bytes) {
  return host::allocate(bytes);
}
inline void free_device(void* memory, std::size_t bytes) {
  host::release(memory, bytes);
}
inline void* allocate_pinned(std::size_t bytes) {
  return host::allocate(bytes);
}
inline void free_pinned(void* memory, std::size_t bytes) {
  host::release(memory, bytes);
}
inline void copy_to_device(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(d, s, n, stream);
}
inline void copy_to_host(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(d, s, n, stream);
}
inline void copy_on_device(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(d, s, n, stream);
}
inline void fill_zero(void* p, std::size_t n, Stream& stream) {
  host::fill_zero(p, n, stream);
}

}  // namespace backend

}  // namespace llmc
