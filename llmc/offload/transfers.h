// The transfers between the device and the stores of a rank: a stream of their own, next to the
// compute stream, and the bytes that moved.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "llmc/config/offload_places.h"
#include "llmc/device/device.h"
#include "llmc/offload/disk_pieces.h"

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

class Transfers {
 public:
  Transfers() = default;
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  Stream& stream() { return stream_; }

  // Later transfers come after the present work of `other`.
  void follow(Stream& other) {
    reached_.record(other);
    stream_.wait(reached_);
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
  Event reached_;
  std::array<OffloadBytes, 3> bytes_;  // by place
  std::unique_ptr<DiskPieces> disk_pieces_;
};

}  // namespace llmc
