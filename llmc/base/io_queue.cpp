#include "llmc/base/io_queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"

namespace llmc {

IoQueue::IoQueue(std::int64_t threads, std::int64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {
  require(threads > 0, "a queue of transfers needs at least one thread");
  require(chunk_bytes > 0 && chunk_bytes % ScratchFile::kAlignment == 0,
          "the chunk size of a queue of transfers must be a positive multiple of 4096");
  try {
    for (std::int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    stop();
    fail("cannot start a thread", "raise the limit of processes and threads (ulimit -u)");
  }
}

IoQueue::~IoQueue() {
  stop();
}

void IoQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  chunk_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// ---- callers -------------------------------------------------------------------------------

IoQueue::Ticket IoQueue::submit_read(const ScratchFile& file, std::int64_t offset,
                                     std::span<std::byte> bytes) {
  file.check_transfer(offset, bytes);
  return submit({.file = &file, .offset = offset, .target = bytes, .source = {}});
}

IoQueue::Ticket IoQueue::submit_write(const ScratchFile& file, std::int64_t offset,
                                      std::span<const std::byte> bytes) {
  file.check_transfer(offset, bytes);
  return submit({.file = &file, .offset = offset, .target = {}, .source = bytes});
}

IoQueue::Ticket IoQueue::submit(Transfer transfer) {
  const std::int64_t chunks = (transfer.size() + chunk_bytes_ - 1) / chunk_bytes_;
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    if (chunks == 0) return ticket;
    unfinished_.emplace(ticket, std::move(transfer));
    waiting_.push_back(ticket);
  }
  chunks == 1 ? chunk_available_.notify_one() : chunk_available_.notify_all();
  return ticket;
}

void IoQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  require(0 <= ticket && ticket < next_ticket_, "no transfer has this ticket");
  transfer_ended_.wait(lock, [&] { return !unfinished_.contains(ticket); });
  throw_failure(ticket);
}

void IoQueue::finish() {
  std::unique_lock lock(mutex_);
  transfer_ended_.wait(lock, [&] { return unfinished_.empty(); });
  throw_failure(-1);
}

// Throws the error of this transfer, else the oldest one that was not thrown.
void IoQueue::throw_failure(Ticket ticket) {
  auto failure = failures_.find(ticket);
  if (failure == failures_.end()) {
    failure = std::ranges::find_if(failures_, [](const auto& f) { return !f.second.is_thrown; });
  }
  if (failure == failures_.end()) return;
  failure->second.is_thrown = true;
  std::rethrow_exception(failure->second.error);
}

// ---- threads -------------------------------------------------------------------------------

void IoQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    chunk_available_.wait(lock, [&] { return is_stopped_ || !waiting_.empty(); });
    if (is_stopped_) return;
    transfer_chunk(lock);
  }
}

// Carries out the next chunk, during which `lock` is open.
void IoQueue::transfer_chunk(std::unique_lock<std::mutex>& lock) {
  const Ticket ticket = waiting_.front();
  Transfer& transfer = unfinished_.at(ticket);  // stays at its address while a chunk is in flight
  const std::int64_t begin = transfer.started;
  const std::int64_t size = std::min(chunk_bytes_, transfer.size() - begin);
  transfer.started += size;
  if (transfer.started == transfer.size()) waiting_.pop_front();
  ++transfer.in_flight;
  const Transfer copy = transfer;
  lock.unlock();
  std::exception_ptr error;
  try {
    move_bytes(copy, begin, size);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  end_chunk(ticket, begin, std::move(error));
}

void IoQueue::move_bytes(const Transfer& transfer, std::int64_t begin, std::int64_t size) {
  const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(size);
  const std::int64_t offset = transfer.offset + begin;
  if (transfer.is_read()) {
    transfer.file->read(offset, transfer.target.subspan(first, count));
    read_bytes_ += size;
  } else {
    transfer.file->write(offset, transfer.source.subspan(first, count));
    written_bytes_ += size;
  }
}

// After an error no further chunks of the transfer start. Chunks start in the order of their
// positions, so the error of the lowest position is among those in flight.
void IoQueue::end_chunk(Ticket ticket, std::int64_t begin, std::exception_ptr error) {
  Transfer& transfer = unfinished_.at(ticket);
  --transfer.in_flight;
  if (error) {
    if (!transfer.error || begin < transfer.error_position) {
      transfer.error = std::move(error);
      transfer.error_position = begin;
    }
    std::erase(waiting_, ticket);
    transfer.started = transfer.size();
  }
  if (transfer.in_flight > 0 || transfer.started < transfer.size()) return;
  if (transfer.error) failures_.emplace(ticket, Failure{std::move(transfer.error)});
  unfinished_.erase(ticket);
  transfer_ended_.notify_all();
}

}  // namespace llmc
