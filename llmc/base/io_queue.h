// Transfers of scratch files that a few threads carry out while others compute.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "llmc/base/scratch_file.h"

namespace llmc {

// Each transfer is split into chunks, several of which are in flight at a time. Any number of
// threads may submit and wait.
//
// Transfers run at the same time and in any order. If two of them overlap in a file or in memory,
// wait for the first one before submitting the second.
class IoQueue {
 public:
  using Ticket = std::int64_t;  // number of a transfer, counted from 0

  // Measured twice with 2 GiB on a virtual disk, relative to one thread with transfers of 8 MiB:
  // 1.04 and 1.20 in writes (3.2 GB/s), 1.02 and 1.26 in reads (1.3 GB/s). From 2 threads on, all
  // chunks from 1 to 8 MiB reach at least 0.98. Other disks need more bytes in flight.
  static constexpr std::int64_t kThreads = 4;
  static constexpr std::int64_t kChunk = std::int64_t{4} << 20;

  // The threads inherit the signal mask of the caller: after SignalThread::start, they block all
  // asynchronous signals. `chunk_bytes` is a multiple of ScratchFile::kAlignment.
  explicit IoQueue(std::int64_t threads = kThreads, std::int64_t chunk_bytes = kChunk);
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  // Waits for the chunks in flight and drops all others. Call finish() before this if the transfers
  // matter.
  ~IoQueue();

  // Submit a transfer, which may begin at once. The file and the memory must exist until wait() or
  // finish() has returned, also if that throws. Throw if ScratchFile::check_transfer does.
  Ticket submit_read(const ScratchFile& file, std::int64_t offset, std::span<std::byte> bytes);
  Ticket submit_write(const ScratchFile& file, std::int64_t offset,
                      std::span<const std::byte> bytes);

  // Waits until no chunk of the transfer is in flight. Throws its error, the one of the lowest
  // position, each time that it is called. If the transfer has no error, throws the oldest error of
  // another transfer that no call has thrown yet: its own ticket may never be waited for.
  void wait(Ticket ticket);

  // Waits for all transfers. Throws the oldest error that no call has thrown yet.
  void finish();

  // Bytes of all chunks that were transferred without an error.
  std::int64_t read_bytes() const { return read_bytes_.load(); }
  std::int64_t written_bytes() const { return written_bytes_.load(); }

 private:
  struct Transfer {
    const ScratchFile* file;
    std::int64_t offset;
    std::span<std::byte> target;        // of a read; else empty
    std::span<const std::byte> source;  // of a write; else empty
    std::int64_t started = 0;           // bytes of the chunks that a thread has taken
    std::int64_t in_flight = 0;         // chunks
    std::int64_t error_position = 0;
    std::exception_ptr error = nullptr;

    bool is_read() const { return !target.empty(); }
    std::int64_t size() const { return std::ssize(target) + std::ssize(source); }
  };

  struct Failure {
    std::exception_ptr error;
    bool is_thrown = false;
  };

  Ticket submit(Transfer transfer);
  void run();
  void transfer_chunk(std::unique_lock<std::mutex>& lock);
  void end_chunk(Ticket ticket, std::int64_t begin, std::exception_ptr error);
  void move_bytes(const Transfer& transfer, std::int64_t begin, std::int64_t size);
  void throw_failure(Ticket ticket);
  void stop();

  const std::int64_t chunk_bytes_;
  std::mutex mutex_;  // for all below except the counters and threads_
  std::condition_variable chunk_available_, transfer_ended_;
  std::map<Ticket, Transfer> unfinished_;  // transfers that wait or are in flight
  std::deque<Ticket> waiting_;             // those with chunks that no thread has taken
  std::map<Ticket, Failure> failures_;     // transfers that ended with an error
  Ticket next_ticket_ = 0;
  bool is_stopped_ = false;
  std::atomic<std::int64_t> read_bytes_ = 0, written_bytes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace llmc
