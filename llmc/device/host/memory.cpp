#include "llmc/device/host/memory.h"

#include <cstdlib>
#include <cstring>

#include "llmc/device/host/sanitizer.h"
#include "llmc/device/host/unwritten.h"

namespace llmc {

namespace host {

namespace {

constexpr std::size_t kAlignment = 256, kHugePage = std::size_t{2} << 20;

}  // namespace

void* allocate(std::size_t bytes) {
  const bool huge = bytes >= 4 * kHugePage && !kAddressSanitizer && !kThreadSanitizer;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kAlignment, bytes) != 0) return nullptr;
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a request: small pages are slower but correct
  TsanIgnoreScope bookkeeping;
  fill_uninitialised(memory, bytes);
  return memory;
}

void release(void* memory, std::size_t) {
  tsan_acquire(Stream::device_token());
  std::free(memory);
}

void copy(void* destination, const void* source, std::size_t bytes, Stream& stream) {
  stream.run([=] { std::memcpy(destination, source, bytes); });
}

}  // namespace host

namespace backend {

void fill_zero(void* p, std::size_t n, Stream& stream) {
  stream.run([=] { std::memset(p, 0, n); });
}

}  // namespace backend

}  // namespace llmc
