// cp.async on the host: the copy happens at the wait. Until then the destination is poisoned and
// holds NaN, so that a read before the wait is detected.
#pragma once

#include <cstring>

#include "llmc/device/host/block.h"

namespace llmc {

inline constexpr int kAsyncBytes = 16;

namespace host {
// The copy may happen at any time between the request and the wait, so TSan is shown the accesses
// at both ends.
inline void touch(const PendingCopy& copy) {
  Observed as_the_kernel;
  if (copy.valid) tsan_reads(copy.source, kAsyncBytes);
  tsan_writes(copy.destination, kAsyncBytes);
}

// Executes the copies of all committed groups except the newest `pending`.
inline void finish_copies(int pending) {
  Unobserved bookkeeping;
  ThreadSlot& me = *Block::thread();
  std::size_t done = 0;
  for (; done < me.copies.size() && me.copies[done].group < me.copy_group - pending; ++done) {
    const PendingCopy& copy = me.copies[done];
    unpoison(copy.destination, kAsyncBytes);
    if (copy.valid) {
      std::memcpy(copy.destination, copy.source, kAsyncBytes);
    } else {
      std::memset(copy.destination, 0, kAsyncBytes);
    }
    touch(copy);
  }
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(done));
}
}  // namespace host

inline void copy_async_16(void* shared_destination, const void* source, bool valid = true,
                          host::Where where = host::Where::current()) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % kAsyncBytes == 0;
  };
  if (!aligned(shared_destination) || (valid && !aligned(source))) {
    host::Block::current()->stop([&] {
      return host::Place{"copy_async_16", where}.text() +
             " needs addresses that are multiples of 16";
    });
  }
  host::PendingCopy copy{static_cast<char*>(shared_destination), static_cast<const char*>(source),
                         valid, 0, where};
  host::touch(copy);
  if (valid) host::check_readable(source, kAsyncBytes);
  host::check_readable(shared_destination, kAsyncBytes);
  host::Unobserved bookkeeping;
  host::ThreadSlot& me = *host::Block::thread();
  copy.group = me.copy_group;
  me.copies.push_back(copy);
  host::fill_unwritten(shared_destination, kAsyncBytes);
  host::poison(shared_destination, kAsyncBytes);
}

inline void copy_async_commit() {
  host::Unobserved bookkeeping;
  ++host::Block::thread()->copy_group;
}

template <int Pending>
void copy_async_wait() {
  host::finish_copies(Pending);
}

}  // namespace llmc
