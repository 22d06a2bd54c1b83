// Allocates all memory of a run once, before the first step. Each component reserves what it needs;
// the plan adds it up by segment, allocates one buffer on the device and assigns the addresses.
// Memory use is constant from the start. If it does not fit, the error reports the size of each
// segment. Segments of offloaded state are in host memory or on a disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmc/config/offload_places.h"
#include "llmc/device/device.h"

namespace llmc {

inline std::string megabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

class MemoryPlan {
 public:
  struct Segment {
    std::string name;
    std::int64_t bytes = 0;
    Place place = Place::device;

    bool operator==(const Segment&) const = default;
  };

  // Sets the shape of `tensor` now and its address in allocate(); it must not move before that.
  // Segments are reported in the order of their first reservation.
  template <class T, int R, class... Sizes>
  void reserve(const std::string& segment, Tensor<T, R>& tensor, Sizes... sizes) {
    static_assert(sizeof...(Sizes) == R);
    tensor = make_tensor(static_cast<T*>(nullptr), sizes...);
    const std::int64_t offset = total_;
    const std::int64_t bytes = checked_bytes(sizeof(T), {static_cast<std::int64_t>(sizes)...});
    total_ += bytes;
    tensors_.emplace_back(offset, tensor.size() * static_cast<std::int64_t>(sizeof(T)));
    segment_named(segment, Place::device).bytes += bytes;
    bindings_.push_back([&tensor, offset](unsigned char* base) {
      tensor.data = reinterpret_cast<T*>(base + offset);
    });
  }

  // Sets `memory` to memory that has room for any of `layouts`, plans whose tensors share it.
  void reserve_shared(const std::string& segment, Tensor<unsigned char, 1>& memory,
                      std::vector<MemoryPlan> layouts) {
    std::int64_t bytes = 0;
    for (const MemoryPlan& layout : layouts) bytes = std::max(bytes, layout.total());
    reserve(segment, memory, bytes);
    const auto shared = std::make_shared<std::vector<MemoryPlan>>(std::move(layouts));
    bindings_.push_back([&memory, shared](unsigned char*) {
      for (const MemoryPlan& layout : *shared) {
        for (const auto& bind : layout.bindings_) bind(memory.data);
      }
    });
  }

  // Adds memory outside the device, which allocate() makes `create` allocate.
  void reserve_outside(Place place, const std::string& segment, std::int64_t bytes,
                       std::function<void(std::int64_t bytes)> create) {
    segment_named(segment, place).bytes += bytes;
    outside_.push_back([bytes, create = std::move(create)] { create(bytes); });
  }

  // Bytes in the memory of the device, which on a CPU is also the host's.
  static std::int64_t device_bytes(const std::vector<Segment>& segments,
                                   bool is_host_memory = !kCudaTarget) {
    std::int64_t bytes = 0;
    for (const Segment& segment : segments) {
      const bool is_host = segment.place == Place::host && is_host_memory;
      if (segment.place == Place::device || is_host) bytes += segment.bytes;
    }
    return bytes;
  }

  // Bytes of the buffer on the device, and of the segments in any place.
  std::int64_t total() const { return total_; }
  std::int64_t total(Place place) const {
    std::int64_t total = 0;
    for (const Segment& segment : segments_) total += segment.place == place ? segment.bytes : 0;
    return total;
  }
  const std::vector<Segment>& segments() const { return segments_; }

  // "weights 474.7 MiB, gradients ...; in all 1945.6 MiB"; with offloaded state "... moments 2 MiB
  // (host); in all 12.3 MiB on the device, 2 MiB host"
  std::string report() const {
    std::string text;
    for (const Segment& segment : segments_) {
      text += (text.empty() ? "" : ", ") + segment.name + " " + megabytes(segment.bytes);
      if (segment.place != Place::device)
        text += std::string(" (") + place_name(segment.place) + ")";
    }
    text += "; in all " + megabytes(total_);
    bool is_first = true;
    for (const Place place : {Place::host, Place::disk}) {
      if (total(place) == 0) continue;
      text += (std::exchange(is_first, false) ? " on the device, " : ", ") +
              megabytes(total(place)) + " " + place_name(place);
    }
    return text;
  }

  void allocate() {
    memory_ = Buffer<unsigned char>(total_);
    for (const auto& bind : bindings_) bind(memory_.data());
    bindings_.clear();
    for (const auto& [offset, bytes] : tensors_) note_tensor(memory_.data() + offset, bytes);
    tensors_.clear();
    for (const auto& create : outside_) create();
    outside_.clear();
  }

 private:
  static constexpr std::int64_t kAlignment = 256;

  // Returns the product, rounded up to kAlignment. Overflow-checked: a mistyped size must not wrap
  // around to a small one.
  std::int64_t checked_bytes(std::int64_t bytes, std::initializer_list<std::int64_t> sizes) const {
    constexpr std::int64_t kMaxBytes = std::int64_t{1} << 55;
    for (const std::int64_t size : sizes) {
      if (size > 0 && bytes > kMaxBytes / size) {
        fail("the run needs more than 32 PiB of device memory",
             "use a smaller batch, sequence length or model");
      }
      bytes *= size;
    }
    if (total_ > kMaxBytes) fail("the run needs more than 32 PiB of device memory");
    return round_up(bytes, kAlignment) + kTensorGap;
  }

  Segment& segment_named(const std::string& name, Place place) {
    for (Segment& segment : segments_) {
      if (segment.name == name && segment.place == place) return segment;
    }
    segments_.push_back({name, 0, place});
    return segments_.back();
  }

  std::vector<Segment> segments_;
  std::vector<std::function<void(unsigned char*)>> bindings_;
  std::vector<std::pair<std::int64_t, std::int64_t>> tensors_;  // offsets and bytes
  std::vector<std::function<void()>> outside_;
  std::int64_t total_ = 0;
  Buffer<unsigned char> memory_;
};

}  // namespace llmc
