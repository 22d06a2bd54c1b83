// An array of the training state of a rank: in device memory, or offloaded to a store, of which
// only chunks are in device memory at a time (state_chunks.h).
#pragma once

#include <cstdint>
#include <memory>

#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/offload/make_store.h"
#include "llmc/offload/store.h"
#include "llmc/offload/transfers.h"

namespace llmc {

// The array as bytes, for code that works on arrays of several types.
class StateBytes {
 public:
  explicit StateBytes(std::int64_t element_bytes) : element_bytes_(element_bytes) {}
  StateBytes(const StateBytes&) = delete;
  StateBytes& operator=(const StateBytes&) = delete;

  bool is_resident() const { return store_ == nullptr; }
  bool is_on_host() const { return place_ == Place::host; }
  bool is_on_disk() const { return place_ == Place::disk; }
  std::int64_t size() const { return size_; }  // elements
  std::int64_t element_bytes() const { return element_bytes_; }

  // Copies elements [first, first + n) of an offloaded array to device memory, or from it, in the
  // order of the transfers.
  void fetch(void* device, std::int64_t first, std::int64_t n) {
    if (n == 0) return;
    transfers_->read(*store_, place_, device, first * element_bytes_, n * element_bytes_);
  }
  void put(std::int64_t first, const void* device, std::int64_t n) {
    if (n == 0) return;
    transfers_->write(*store_, place_, first * element_bytes_, device, n * element_bytes_);
  }
  // Element `first` of a resident array, and of one in host memory.
  virtual void* resident(std::int64_t first) const = 0;
  void* on_host(std::int64_t first) const { return store_->memory() + first * element_bytes_; }

 protected:
  virtual ~StateBytes() = default;

  void reserve_store(const char* segment, std::int64_t size, const OffloadPlace& place,
                     Context& context, MemoryPlan& plan) {
    size_ = size;
    if (place.place == Place::device) return;
    place_ = place.place;
    transfers_ = &context.transfers();
    store_ = make_store(place, *transfers_);
    plan.reserve_outside(place.place, segment, size * element_bytes_,
                         [this](std::int64_t bytes) { store_->allocate(bytes); });
  }

 private:
  std::int64_t element_bytes_, size_ = 0;
  Place place_ = Place::device;
  Transfers* transfers_ = nullptr;
  std::unique_ptr<Store> store_;  // null: the array is resident
};

template <class T>
class StateArray final : public StateBytes {
 public:
  StateArray() : StateBytes(sizeof(T)) {}

  // Reserves `size` elements in the plan; usable after plan.allocate(). The context must
  // outlive the array, which must not move.
  void reserve(const char* segment, std::int64_t size, const OffloadPlace& place, Context& context,
               MemoryPlan& plan) {
    reserve_store(segment, size, place, context, plan);
    if (is_resident()) plan.reserve(segment, tensor_, size);
  }

  // The elements of a resident array.
  const Tensor<T, 1>& tensor() const { return tensor_; }
  T* data() const { return tensor_.data; }
  void* resident(std::int64_t first) const override { return tensor_.data + first; }

 private:
  Tensor<T, 1> tensor_;
};

}  // namespace llmc
