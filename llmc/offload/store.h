// Memory outside the device that holds an array of training state.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "llmc/config/offload_places.h"
#include "llmc/device/device.h"

namespace llmc {

class Store {
 public:
  virtual ~Store() = default;

  // Reserves memory or disk space for `bytes` bytes, which are zeros.
  virtual void allocate(std::int64_t bytes) = 0;
  // Copies [offset, offset + bytes) to device memory, or from it, in the order of `transfers`.
  virtual void read(void* device, std::int64_t offset, std::int64_t bytes, Stream& transfers) = 0;
  virtual void write(std::int64_t offset, const void* device, std::int64_t bytes,
                     Stream& transfers) = 0;
  // The bytes, if they are in host memory; otherwise null. Work of the host on them comes after
  // transfers for which it has waited, and before those that start later.
  virtual unsigned char* memory() const { return nullptr; }
};

// Pinned host memory.
class HostStore final : public Store {
 public:
  void allocate(std::int64_t bytes) override {
    memory_ = PinnedBuffer<unsigned char>(bytes);
    std::memset(memory_.data(), 0, memory_.bytes());
  }
  void read(void* device, std::int64_t offset, std::int64_t bytes, Stream& transfers) override {
    copy_to_device(static_cast<unsigned char*>(device),
                   static_cast<const unsigned char*>(memory_.data() + offset), bytes, transfers);
  }
  void write(std::int64_t offset, const void* device, std::int64_t bytes,
             Stream& transfers) override {
    copy_to_host(memory_.data() + offset, static_cast<const unsigned char*>(device), bytes,
                 transfers);
  }
  unsigned char* memory() const override { return memory_.data(); }

 private:
  PinnedBuffer<unsigned char> memory_;
};

}  // namespace llmc
