// cp.async of the host: the copy happens at the wait. Until then the destination is poisoned and
// holds NaN, so that a read that comes too early is found.
#pragma once

#include <cstring>

#include "llmc/device/host/block.h"

namespace llmc {

inline constexpr int kAsyncBytes = 16;

inline void copy_async_16(void* shared_destination, const void* source, bool valid = true) {
  host::ThreadSlot& me = *host::Block::thread();
  host::Unobserved bookkeeping;
  auto* destination = static_cast<char*>(shared_destination);
  if (reinterpret_cast<std::uintptr_t>(destination) % kAsyncBytes != 0 ||
      (valid && reinterpret_cast<std::uintptr_t>(source) % kAsyncBytes != 0)) {
    host::Block::current()->stop("copy_async_16 needs addresses that are multiples of 16");
  }
  me.copies.push_back({destination, static_cast<const char*>(source), valid, me.copy_group});
  host::fill_unwritten(destination, kAsyncBytes);
  host::poison(destination, kAsyncBytes);
}

inline void copy_async_commit() { ++host::Block::thread()->copy_group; }

namespace host {
// Carries out, as the kernel's own accesses, the copies of all groups before `end`.
inline void finish_copies(ThreadSlot& me, int end) {
  std::size_t done = 0;
  for (; done < me.copies.size() && me.copies[done].group < end; ++done) {
    const PendingCopy& copy = me.copies[done];
    unpoison(copy.destination, kAsyncBytes);
    if (copy.valid) {
      tsan_reads(copy.source, kAsyncBytes);
      std::memcpy(copy.destination, copy.source, kAsyncBytes);
    } else {
      std::memset(copy.destination, 0, kAsyncBytes);
    }
    tsan_writes(copy.destination, kAsyncBytes);
  }
  Unobserved bookkeeping;
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(done));
}
}  // namespace host

template <int Pending>
void copy_async_wait() {
  host::ThreadSlot& me = *host::Block::thread();
  host::finish_copies(me, me.copy_group - Pending);
}

}  // namespace llmc
