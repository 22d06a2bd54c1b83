// Host memory for transfers that bypass the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "llmc/base/error.h"

namespace llmc {

// Owns bytes whose address is a multiple of kAlignment. Their values are not initialised.
class AlignedBuffer {
 public:
  // Disks and file systems need the address to be a multiple of their block size, at most a page.
  static constexpr std::int64_t kAlignment = 4096;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::int64_t bytes) : size_(checked(bytes)) {
    data_.reset(static_cast<std::byte*>(::operator new (size_, std::align_val_t{kAlignment})));
  }

  std::byte* data() const { return data_.get(); }
  std::int64_t size() const { return data_ ? static_cast<std::int64_t>(size_) : 0; }
  std::span<std::byte> bytes() const { return {data_.get(), static_cast<std::size_t>(size())}; }

  // The bytes [offset, offset + size), which must exist.
  std::span<std::byte> bytes(std::int64_t offset, std::int64_t size) const {
    require(0 <= offset && 0 <= size && size <= this->size() - offset,
            "a range is outside its aligned buffer");
    return bytes().subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  }

 private:
  static std::size_t checked(std::int64_t bytes) {
    require(bytes >= 0, "the size of an aligned buffer is negative");
    return static_cast<std::size_t>(bytes);
  }

  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete (data, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;  // meaningless after a move
};

}  // namespace llmc
