// Memory and copies of the host target. "Device" memory is ordinary memory; each new allocation is
// filled with a signalling NaN. With LLMC_GUARD=1 it is memory of its own (guard.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/device/host/stream.h"
#include "llmc/device/target.h"

namespace llmc {

namespace host {

// Large allocations request huge pages. With small pages, the first use of a model causes half a
// million page faults, and every pass through it as many TLB misses.
void* allocate_device(std::size_t bytes);
void* allocate_pinned(std::size_t bytes);

// Tells the executor of compiled kernels that these bytes of an allocation are a tensor.
void note_tensor(const void* memory, std::size_t bytes);

// Freeing device or pinned memory waits for the device, as on a GPU. Only TSan and LLMC_GUARD=1
// need this: otherwise host streams run work immediately.
void release_device(void* memory);
void release_pinned(void* memory);

enum class CopyDirection { to_device, to_host, on_device };

// Both use the threads of the executor. With LLMC_GUARD=1, a copy with an operand on the wrong side
// is an Error. Pageable memory is treated as CUDA does: a copy from it reads it now, and the host
// waits for a copy to it.
void copy(CopyDirection direction, void* destination, const void* source, std::size_t bytes,
          Stream& stream);
void fill_zero(void* p, std::size_t bytes, Stream& stream);

}  // namespace host

namespace backend {

inline constexpr std::int64_t kTensorGap = kGpuKernels ? 256 : 0;

inline void note_tensor(const void* data, std::size_t bytes) {
  if constexpr (kGpuKernels) host::note_tensor(data, bytes);
}
inline void* allocate_device(std::size_t bytes) {
  return host::allocate_device(bytes);
}
inline void free_device(void* memory, std::size_t) {
  host::release_device(memory);
}
inline void* allocate_pinned(std::size_t bytes) {
  return host::allocate_pinned(bytes);
}
inline void free_pinned(void* memory, std::size_t) {
  host::release_pinned(memory);
}
inline void copy_to_device(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(host::CopyDirection::to_device, d, s, n, stream);
}
inline void copy_to_host(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(host::CopyDirection::to_host, d, s, n, stream);
}
inline void copy_on_device(void* d, const void* s, std::size_t n, Stream& stream) {
  host::copy(host::CopyDirection::on_device, d, s, n, stream);
}
inline void fill_zero(void* p, std::size_t n, Stream& stream) {
  host::fill_zero(p, n, stream);
}

}  // namespace backend

}  // namespace llmc
