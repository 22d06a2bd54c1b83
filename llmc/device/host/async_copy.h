// cp.async on the host: the copy happens at the wait. Until then the destination is poisoned and
// holds NaN, so that a read before the wait is detected.
#pragma once

#include <cstring>

#include "llmc/device/host/block.h"
#include "llmc/device/host/unwritten.h"

namespace llmc {

inline constexpr int kAsyncBytes = 16;

namespace host {
// The copy may happen at any time between the request and the wait, so TSan is shown the accesses
// at both ends.
inline void report_accesses(const PendingCopy& copy) {
  TsanCheckScope kernel_access;
  if (copy.valid) tsan_reads(copy.source, kAsyncBytes);
  tsan_writes(copy.destination, kAsyncBytes);
}

// Executes the copies of all committed groups except the newest `pending`.
inline void finish_copies(int pending) {
  TsanIgnoreScope bookkeeping;
  ThreadSlot& self = *Block::thread();
  std::size_t done = 0;
  for (; done < self.copies.size() && self.copies[done].group < self.copy_group - pending; ++done) {
    const PendingCopy& copy = self.copies[done];
    unpoison(copy.destination, kAsyncBytes);
    if (copy.valid) {
      std::memcpy(copy.destination, copy.source, kAsyncBytes);
    } else {
      std::memset(copy.destination, 0, kAsyncBytes);
    }
    report_accesses(copy);
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<std::ptrdiff_t>(done));
}
}  // namespace host

inline void copy_async_16(void* shared_destination, const void* source, bool valid = true,
                          host::SourceLocation location = host::SourceLocation::current()) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % kAsyncBytes == 0;
  };
  if (!aligned(shared_destination) || (valid && !aligned(source))) {
    host::Block::current()->stop([&] {
      return host::CallSite{"copy_async_16", location}.text() +
             " needs addresses that are multiples of 16";
    });
  }
  host::PendingCopy copy{static_cast<char*>(shared_destination), static_cast<const char*>(source),
                         valid, 0, location};
  host::report_accesses(copy);
  if (valid) host::check_readable(source, kAsyncBytes);
  host::check_readable(shared_destination, kAsyncBytes);
  host::TsanIgnoreScope bookkeeping;
  host::ThreadSlot& self = *host::Block::thread();
  copy.group = self.copy_group;
  self.copies.push_back(copy);
  host::fill_uninitialised(shared_destination, kAsyncBytes);
  host::poison(shared_destination, kAsyncBytes);
}

inline void copy_async_commit() {
  host::TsanIgnoreScope bookkeeping;
  ++host::Block::thread()->copy_group;
}

template <int Pending>
void copy_async_wait() {
  host::finish_copies(Pending);
}

}  // namespace llmc
