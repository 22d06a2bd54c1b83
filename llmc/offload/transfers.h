// The transfers between the device and the stores of a rank, in their order: a stream of their own,
// next to the compute stream, and the bytes that moved. If a store is on a disk, a thread of their
// own executes all of them, so that the calling thread waits for a disk only where it needs the
// bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "llmc/base/task_thread.h"
#include "llmc/config/offload_places.h"
#include "llmc/device/device.h"
#include "llmc/offload/disk_pieces.h"
#include "llmc/offload/store.h"

namespace llmc {

// Bytes that a rank has moved from and to one place.
struct OffloadBytes {
  std::int64_t to_device = 0, from_device = 0;

  bool operator==(const OffloadBytes&) const = default;
  OffloadBytes& operator+=(const OffloadBytes& other) {
    to_device += other.to_device;
    from_device += other.from_device;
    return *this;
  }
  OffloadBytes operator-(const OffloadBytes& other) const {
    return {to_device - other.to_device, from_device - other.from_device};
  }
};

// The end of the transfers that were submitted before it (Transfers::mark).
class TransferPoint {
 private:
  friend class Transfers;
  std::shared_ptr<Event> event_ = std::make_shared<Event>();
  TaskThread::Ticket ticket_ = 0;
};

class Transfers {
 public:
  Transfers() = default;
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Executes later transfers on a thread.
  void start_thread() {
    if (thread_) return;
    thread_ = std::make_unique<TaskThread>([gpu = current_gpu()] { use_gpu(gpu); });
  }

  // Calls transfer(stream) after all earlier transfers. It holds what it needs by value. Errors
  // are thrown by a later call that waits.
  template <class Transfer>
  TaskThread::Ticket submit(const Transfer& transfer) {
    if (thread_) return thread_->submit([this, transfer] { transfer(stream_); });
    transfer(stream_);
    return 0;
  }

  // Copy `bytes` bytes of a store, from `offset` on, to device memory or from it, and count them.
  // The store is in `place`.
  void read(Store& store, Place place, void* device, std::int64_t offset, std::int64_t bytes) {
    submit([=, &store](Stream& stream) { store.read(device, offset, bytes, stream); });
    count_to_device(place, bytes);
  }
  void write(Store& store, Place place, std::int64_t offset, const void* device,
             std::int64_t bytes) {
    submit([=, &store](Stream& stream) { store.write(offset, device, bytes, stream); });
    count_from_device(place, bytes);
  }

  // Later transfers come after the present work of `other`.
  void follow(Stream& other) {
    const auto reached = thread_ ? std::make_shared<Event>() : reached_;
    reached->record(other);
    follow(reached);
  }
  // The same for the point of an event, which must not be recorded again.
  void follow(const std::shared_ptr<Event>& reached) {
    submit([reached](Stream& stream) { stream.wait(*reached); });
  }

  // `point` is now after all transfers so far.
  void mark(TransferPoint& point) {
    point.ticket_ = submit([event = point.event_](Stream& stream) { event->record(stream); });
  }
  // Later work of `stream` comes after the point. The caller waits for transfers of a disk.
  void await(const TransferPoint& point, Stream& stream) {
    if (thread_) thread_->wait(point.ticket_);
    stream.wait(*point.event_);
  }
  // The host waits for all transfers so far.
  void synchronize() {
    if (thread_) thread_->wait(submit([](Stream& stream) { stream.synchronize(); }));
    if (!thread_) stream_.synchronize();
  }
  // Waits until the thread is idle, so that what transfers use may be destroyed. Throws nothing.
  void settle() {
    if (thread_) thread_->settle();
  }

  // The host memory and the threads of all disk stores; the first call creates them.
  DiskPieces& disk_pieces() {
    if (!disk_pieces_) disk_pieces_ = std::make_unique<DiskPieces>();
    return *disk_pieces_;
  }

  void count_to_device(Place place, std::int64_t bytes) { of(place).to_device += bytes; }
  void count_from_device(Place place, std::int64_t bytes) { of(place).from_device += bytes; }
  // The bytes since the start of the run.
  const OffloadBytes& bytes(Place place) const { return bytes_[static_cast<std::size_t>(place)]; }

 private:
  OffloadBytes& of(Place place) { return bytes_[static_cast<std::size_t>(place)]; }

  Stream stream_;
  std::shared_ptr<Event> reached_ = std::make_shared<Event>();
  std::array<OffloadBytes, 3> bytes_;  // by place
  std::unique_ptr<DiskPieces> disk_pieces_;
  std::unique_ptr<TaskThread> thread_;  // last: it uses the others
};

}  // namespace llmc
