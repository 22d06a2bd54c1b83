// Moves the values of a parameter between host memory of rank 0 and all ranks, for files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/model/memory_plan.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

class PartCollector {
 public:
  // Reserves memory in the plan. The layout and the ranks must outlive the object.
  PartCollector(const ShardLayout& layout, Ranks& ranks, MemoryPlan& plan)
      : layout_(layout), ranks_(ranks) {
    if (!ranks.single()) plan.reserve("staging", chunk_, kChunk);
  }
  PartCollector(const PartCollector&) = delete;
  PartCollector& operator=(const PartCollector&) = delete;

  // The values of rank 0, in host memory, replace those of the other ranks.
  void spread(std::vector<float>& values, Stream& stream) {
    if (ranks_.single()) return;
    const std::int64_t n = std::ssize(values);
    ranks_.communicate(stream, [&] {
      for (std::int64_t first = 0; first < n; first += kChunk) {
        const std::int64_t size = std::min(kChunk, n - first);
        float* const host = values.data() + first;
        if (ranks_.rank() == 0) {
          copy_to_device(chunk_.data, static_cast<const float*>(host), size, ranks_.stream());
        }
        ranks_.all().broadcast(make_tensor(chunk_.data, size), 0, ranks_.stream());
        if (ranks_.rank() != 0) {
          copy_to_host(host, static_cast<const float*>(chunk_.data), size, ranks_.stream());
        }
      }
    });
    ranks_.all().wait(ranks_.stream());
  }

  // Writes spec.size() values to host memory on rank 0; owned(part) is this rank's part in device
  // memory. All ranks call this; only those of rank 0's shard group take part.
  template <class Owned>
  void collect(const ParameterSpec& spec, float* values, Stream& stream, const Owned& owned) {
    if (ranks_.mesh().replica(ranks_.rank()) != 0 && layout_.shards() > 1) return;
    if (layout_.shards() == 1 && ranks_.rank() != 0) return;
    for (int index = 0; index < layout_.shards(); ++index) {
      const OwnedPart part = layout_.values_of(spec, index);
      if (index == 0 && layout_.index() == 0) {
        copy_to_host(values + part.first, static_cast<const float*>(owned(part)), part.size,
                     stream);
        stream.synchronize();
      } else if (layout_.index() == index || layout_.index() == 0) {
        move_to_first(part, index, layout_.index() == index ? owned(part) : nullptr, values,
                      stream);
      }
    }
  }

 private:
  static constexpr std::int64_t kChunk = 1 << 16;  // values

  // Moves a part, in chunks, from the rank with this index in the shard group to rank 0, for which
  // `owned` is null.
  void move_to_first(const OwnedPart& part, int index, const float* owned, float* values,
                     Stream& stream) {
    ranks_.communicate(stream, [&] {
      for (std::int64_t first = 0; first < part.size; first += kChunk) {
        const std::int64_t size = std::min(kChunk, part.size - first);
        if (owned != nullptr) {
          ranks_.shard().send(make_tensor(owned + first, size), 0, ranks_.stream());
          continue;
        }
        ranks_.shard().receive(make_tensor(chunk_.data, size), index, ranks_.stream());
        copy_to_host(values + part.first + first, static_cast<const float*>(chunk_.data), size,
                     ranks_.stream());
      }
    });
    ranks_.shard().wait(ranks_.stream());
  }

  const ShardLayout& layout_;
  Ranks& ranks_;
  Tensor<float, 1> chunk_;
};

}  // namespace llmc
