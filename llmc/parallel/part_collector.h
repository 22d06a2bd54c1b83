// Collects the values of a parameter from all ranks in host memory of one, for files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

class PartCollector {
 public:
  // Reserves memory in the plan. The layout and the ranks must outlive the object. `step`: if a
  // part is read piece by piece, the elements of a piece, equal on all ranks.
  PartCollector(const ShardLayout& layout, Ranks& ranks, std::int64_t step, MemoryPlan& plan)
      : layout_(layout), ranks_(ranks), message_(std::min(kChunk, step)) {
    if (!ranks.single()) plan.reserve("staging", chunk_, kChunk);
  }
  PartCollector(const PartCollector&) = delete;
  PartCollector& operator=(const PartCollector&) = delete;

  // Writes spec.size() values to host memory on rank `root`. read(part, use) calls use(values,
  // first, n) for consecutive elements of this rank's part, of dtype U in device memory. All ranks
  // call this. Those take part that hold the shards of the root's replica on the parameter's first
  // pipeline rank; of a parameter that tensor ranks hold in equal copies, only those with its
  // tensor rank.
  template <class U = float, class Read>
  void collect(const ParameterSpec& spec, int root, float* values, Stream& stream,
               const Read& read) {
    const Mesh& mesh = ranks_.mesh();
    const int tensor_ranks = spec.part.split ? mesh.tensor_ranks : 1;
    const int replica = mesh.replica(root), own_tensor = mesh.tensor_rank(root);
    for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
      const LocalParameter local =
          tensor_ranks == 1 ? spec.part : spec.local({tensor, mesh.tensor_ranks});
      for (int shard = 0; shard < layout_.shards(); ++shard) {
        const OwnedPart part = layout_.values_of(spec, local, shard);
        const int owner = mesh.rank_at(spec.first_holder, replica,
                                       layout_.shards() == 1 ? mesh.shard_rank(root) : shard,
                                       tensor_ranks == 1 ? own_tensor : tensor);
        if (part.size == 0 || (ranks_.rank() != root && ranks_.rank() != owner)) continue;
        if (owner == root) {
          read(part, [&](const U* elements, std::int64_t first, std::int64_t n) {
            place<U>(values, local.index, part.first + first, n, elements, stream);
          });
        } else if (ranks_.rank() == owner) {
          read(part, [&](const U* elements, auto, std::int64_t n) {
            send<U>(elements, n, root, stream);
          });
        } else {
          receive<U>(part, local.index, owner, values, stream);
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kChunk = 1 << 16;  // values

  // Sends elements in chunks to `root`.
  template <class U>
  void send(const U* elements, std::int64_t n, int root, Stream& stream) {
    ranks_.communicate(stream, [&] {
      for (std::int64_t first = 0; first < n; first += message_) {
        const std::int64_t size = std::min(message_, n - first);
        ranks_.all().send(make_tensor(elements + first, size), root, ranks_.stream());
      }
    });
    ranks_.all().wait(ranks_.stream());
  }

  // Receives a part in these chunks.
  template <class U>
  void receive(const OwnedPart& part, const GlobalIndex& index, int owner, float* values,
               Stream& stream) {
    static_assert(sizeof(U) <= sizeof(float));
    U* const chunk = reinterpret_cast<U*>(chunk_.data);
    ranks_.communicate(stream, [&] {
      for (std::int64_t first = 0; first < part.size; first += message_) {
        const std::int64_t size = std::min(message_, part.size - first);
        ranks_.all().receive(make_tensor(chunk, size), owner, ranks_.stream());
        place<U>(values, index, part.first + first, size, chunk, ranks_.stream());
      }
    });
    ranks_.all().wait(ranks_.stream());
  }

  // Copies the rank's elements [first, first + n), in device memory, to their places in `values`.
  template <class U>
  void place(float* values, const GlobalIndex& index, std::int64_t first, std::int64_t n,
             const U* elements, Stream& stream) {
    if constexpr (std::is_same_v<U, float>) {
      if (index.row_size == 0) {
        copy_to_host(values + index(first), elements, n, stream);
        return ranks_.synchronize(stream);
      }
    }
    std::vector<U> host(static_cast<std::size_t>(n));
    copy_to_host(host.data(), elements, n, stream);
    ranks_.synchronize(stream);
    for (std::int64_t i = 0; i < n; ++i) values[index(first + i)] = to_float(host[i]);
  }

  const ShardLayout& layout_;
  Ranks& ranks_;
  std::int64_t message_;  // values of a message
  Tensor<float, 1> chunk_;
};

}  // namespace llmc
