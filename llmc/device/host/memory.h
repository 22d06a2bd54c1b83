// Memory and copies of the host target. "Device" memory is ordinary memory; each new allocation is
// filled with a signalling NaN.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "llmc/base/error.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/stream.h"
#include "llmc/device/host/unwritten.h"

namespace llmc::host {

inline constexpr std::size_t kAlignment = 256, kHugePage = std::size_t{2} << 20;

// Large allocations request huge pages. With small pages, the first use of a model causes half a
// million page faults, and every pass through it as many TLB misses.
inline void* allocate(std::size_t bytes) {
  const bool huge = bytes >= 4 * kHugePage && !kAddressSanitizer && !kThreadSanitizer;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes) != 0) return nullptr;
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a request: small pages are slower but correct
  TsanIgnoreScope bookkeeping;
  fill_uninitialised(memory, bytes);
  return memory;
}

// Freeing device memory waits for the device, as cudaFree does. Only TSan needs this: host streams
// run work immediately.
inline void release(void* memory, std::size_t) {
  tsan_acquire(Stream::device_token());
  std::free(memory);
}

inline void copy(void* destination, const void* source, std::size_t bytes, Stream& stream) {
  stream.run([=] { std::memcpy(destination, source, bytes); });
}

}  // namespace llmc::host

namespace llmc {
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
  stream.run([=] { std::memset(p, 0, n); });
}
}  // namespace backend
}  // namespace llmc
