#include "llmc/device/host/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/host/compiled_kernels.h"
#include "llmc/device/host/guard.h"
#include "llmc/device/host/late_work.h"
#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"
#include "llmc/device/host/workers.h"
#include "llmc/device/math.h"

namespace llmc {

namespace host {

namespace {

constexpr std::size_t kAlignment = 256, kHugePage = std::size_t{2} << 20;

// Calls work(first, size) for pieces of `bytes` bytes, on several threads: one of them does not use
// all the bandwidth of the memory. A single piece starts no threads.
template <class Work>
void in_pieces(std::size_t bytes, const Work& work) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  if (bytes > 0 && bytes <= kPiece) return work(std::size_t{0}, bytes);
  workers().run(static_cast<std::int64_t>(ceil_div(bytes, kPiece)), [&](std::int64_t i) {
    const std::size_t first = static_cast<std::size_t>(i) * kPiece;
    work(first, std::min(kPiece, bytes - first));
  });
}

void* allocate(std::size_t bytes) {
  const bool huge = bytes >= 4 * kHugePage && !kAddressSanitizer && !kThreadSanitizer;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes) != 0) return nullptr;
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a request: small pages are slower but correct
  TsanIgnoreScope bookkeeping;
  fill_uninitialised(memory, bytes);
  return memory;
}

void copy_now(void* destination, const void* source, std::size_t bytes) {
  if constexpr (kGpuKernels) note_host_copy(destination, source, bytes);
  in_pieces(bytes, [=](std::size_t first, std::size_t size) {
    std::memcpy(static_cast<char*>(destination) + first, static_cast<const char*>(source) + first,
                size);
  });
}

// Throws an Error unless the operand of a copy is device memory, or host memory.
MemoryKind check_operand(const char* name, const void* p, std::size_t bytes, bool on_device) {
  const MemoryKind kind = kind_of(p, bytes);
  if ((kind == MemoryKind::device) != on_device) {
    fail(std::string("the ") + name + " of a copy is " +
         (on_device ? "host memory, not device memory" : "device memory, not host memory"));
  }
  return kind;
}

void copy_guarded(CopyDirection direction, void* destination, const void* source, std::size_t bytes,
                  Stream& stream) {
  const MemoryKind to =
      check_operand("destination", destination, bytes, direction != CopyDirection::to_host);
  const MemoryKind from =
      check_operand("source", source, bytes, direction != CopyDirection::to_device);
  if (to == MemoryKind::pageable || from == MemoryKind::pageable) {
    stream.require_not_recording("pageable memory cannot be copied");
  }
  if (from == MemoryKind::pageable) {
    const auto* const begin = static_cast<const char*>(source);
    const auto staged = std::make_shared<const std::vector<char>>(begin, begin + bytes);
    stream.run([=] { copy_now(destination, staged->data(), bytes); });
    return;
  }
  stream.run([=] { copy_now(destination, source, bytes); });
  if (to == MemoryKind::pageable) stream.synchronize();
}

}  // namespace

void* allocate_device(std::size_t bytes) {
  void* const memory = is_guarded() ? allocate_guarded(bytes) : allocate(bytes);
  if (memory == nullptr) return nullptr;
  if constexpr (kGpuKernels) add_device_memory(memory, bytes, false);
  return memory;
}

void* allocate_pinned(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) return nullptr;
  if (is_guarded()) add_pinned(memory, bytes);
  if constexpr (kGpuKernels) add_device_memory(memory, bytes, true);
  return memory;
}

void note_tensor(const void* memory, std::size_t bytes) {
  if constexpr (kGpuKernels) add_device_tensor(memory, bytes);
}

void release_device(void* memory) {
  if (is_guarded()) LateWork::run_all();
  if constexpr (kGpuKernels) remove_device_memory(memory);
  tsan_acquire(Stream::device_token());
  is_guarded() ? release_guarded(memory) : std::free(memory);
}

void release_pinned(void* memory) {
  if (is_guarded()) {
    LateWork::run_all();
    remove_pinned(memory);
  }
  if constexpr (kGpuKernels) remove_device_memory(memory);
  tsan_acquire(Stream::device_token());
  std::free(memory);
}

void copy(CopyDirection direction, void* destination, const void* source, std::size_t bytes,
          Stream& stream) {
  if (stream.is_late()) return copy_guarded(direction, destination, source, bytes, stream);
  stream.run([=] { copy_now(destination, source, bytes); });
}

void fill_zero(void* p, std::size_t bytes, Stream& stream) {
  if (stream.is_late() && kind_of(p, bytes) != MemoryKind::device) {
    fail("host memory is filled with zeros by a stream");
  }
  stream.run([=] {
    if constexpr (kGpuKernels) note_host_write(p, bytes);
    in_pieces(bytes, [=](std::size_t first, std::size_t size) {
      std::memset(static_cast<char*>(p) + first, 0, size);
    });
  });
}

}  // namespace host

}  // namespace llmc
