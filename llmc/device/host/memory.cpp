#include "llmc/device/host/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "llmc/device/host/compiled_kernels.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"
#include "llmc/device/host/workers.h"
#include "llmc/device/math.h"

namespace llmc {

namespace host {

namespace {

constexpr std::size_t kAlignment = 256, kHugePage = std::size_t{2} << 20;

// Calls work(first, size) for pieces of `bytes` bytes, on several threads: one of them does not use
// all the bandwidth of the memory.
template <class Work>
void in_pieces(std::size_t bytes, const Work& work) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  workers().run(static_cast<std::int64_t>(ceil_div(bytes, kPiece)), [&](std::int64_t i) {
    const std::size_t first = static_cast<std::size_t>(i) * kPiece;
    work(first, std::min(kPiece, bytes - first));
  });
}

}  // namespace

namespace {

void* allocate(std::size_t bytes, bool is_pinned) {
  const bool huge = bytes >= 4 * kHugePage && !kAddressSanitizer && !kThreadSanitizer;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes) != 0) return nullptr;
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a request: small pages are slower but correct
  TsanIgnoreScope bookkeeping;
  fill_uninitialised(memory, bytes);
  if constexpr (kGpuKernels) add_device_memory(memory, bytes, is_pinned);
  return memory;
}

}  // namespace

void* allocate(std::size_t bytes) {
  return allocate(bytes, false);
}
void* allocate_pinned(std::size_t bytes) {
  return allocate(bytes, true);
}

void note_tensor(const void* memory, std::size_t bytes) {
  if constexpr (kGpuKernels) add_device_tensor(memory, bytes);
}

void release(void* memory, std::size_t) {
  if constexpr (kGpuKernels) remove_device_memory(memory);
  tsan_acquire(Stream::device_token());
  std::free(memory);
}

void copy(void* destination, const void* source, std::size_t bytes, Stream& stream) {
  stream.run([=] {
    if constexpr (kGpuKernels) note_host_copy(destination, source, bytes);
    in_pieces(bytes, [=](std::size_t first, std::size_t size) {
      std::memcpy(static_cast<char*>(destination) + first, static_cast<const char*>(source) + first,
                  size);
    });
  });
}

void fill_zero(void* p, std::size_t bytes, Stream& stream) {
  stream.run([=] {
    if constexpr (kGpuKernels) note_host_write(p, bytes);
    in_pieces(bytes, [=](std::size_t first, std::size_t size) {
      std::memset(static_cast<char*>(p) + first, 0, size);
    });
  });
}

}  // namespace host

}  // namespace llmc
