// Owning buffers of device and pinned host memory, and copies in stream order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/device/stream.h"
#include "llmc/device/target.h"
#ifdef __CUDACC__
#include "llmc/device/cuda/memory.h"
#else
#include "llmc/device/host/memory.h"
#endif

namespace llmc {

// Owns `count` elements of T from `Allocate`; the destructor releases them with `Free`. Move-only.
template <class T, void* (*Allocate)(std::size_t), void (*Free)(void*, std::size_t)>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  explicit OwnedMemory(std::int64_t count) : count_(count) {
    require(count >= 0, "the size of a buffer is negative");
    if (count == 0) return;
    data_ = static_cast<T*>(Allocate(bytes()));
    if (data_ == nullptr) {
      fail("no memory for " + std::to_string(bytes()) + " bytes",
           "use a smaller batch, sequence or model");
    }
  }
  OwnedMemory(OwnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) Free(data_, bytes());
  }

  T* data() const { return data_; }
  std::int64_t size() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::int64_t count_ = 0;
};

template <class T>
using Buffer = OwnedMemory<T, &backend::allocate_device, &backend::free_device>;

// Pinned host memory: the device copies to and from it without an intermediate buffer.
template <class T>
using PinnedBuffer = OwnedMemory<T, &backend::allocate_pinned, &backend::free_pinned>;

// Bytes that follow each tensor in a buffer, so that an access beyond it is no access to the next
// one. Only builds that check accesses have them.
inline constexpr std::int64_t kTensorGap = backend::kTensorGap;

// Tells such builds that these bytes of a buffer are a tensor.
inline void note_tensor(const void* data, std::int64_t bytes) {
  backend::note_tensor(data, static_cast<std::size_t>(bytes));
}

// Copy n elements in stream order. The host memory must stay valid and unchanged until the stream
// has executed the copy.
template <class T>
void copy_to_device(T* device, const T* host, std::int64_t n, Stream& stream) {
  if (n > 0) backend::copy_to_device(device, host, static_cast<std::size_t>(n) * sizeof(T), stream);
}

template <class T>
void copy_to_host(T* host, const T* device, std::int64_t n, Stream& stream) {
  if (n > 0) backend::copy_to_host(host, device, static_cast<std::size_t>(n) * sizeof(T), stream);
}

template <class T>
void copy_on_device(T* to, const T* from, std::int64_t n, Stream& stream) {
  if (n > 0) backend::copy_on_device(to, from, static_cast<std::size_t>(n) * sizeof(T), stream);
}

template <class T>
void fill_zero(T* device, std::int64_t n, Stream& stream) {
  if (n > 0) backend::fill_zero(device, static_cast<std::size_t>(n) * sizeof(T), stream);
}

}  // namespace llmc
