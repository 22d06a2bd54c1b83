// The global gradient norm of several ranks: partial sums of the pieces that each rank owns,
// gathered and added in one order, so that the norm and what depends on it have the same bits on
// every rank.
#pragma once

#include <cstdint>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/model/memory_plan.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/optimizer/partials_in_order.h"
#include "llmc/parallel/gradient_buckets.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

class GradientNorm {
 public:
  // Reserves memory in the plan. The layout, that of `table`, and the ranks must outlive the
  // object.
  GradientNorm(const ParameterTable& table, const ShardLayout& layout, Ranks& ranks,
               MemoryPlan& plan)
      : layout_(layout), ranks_(ranks) {
    plan.reserve("staging", partials_,
                 ranks.mesh().tensor_ranks * squared_norm_count(table.stored_size()));
    if (layout.shards() == 1) return;
    const std::int64_t n = squared_norm_count(layout.shard_size());
    plan.reserve("staging", own_pieces_, n);
    plan.reserve("staging", all_pieces_, n * layout.shards());
  }
  GradientNorm(const GradientNorm&) = delete;
  GradientNorm& operator=(const GradientNorm&) = delete;

  // Returns the partial sums of all gradients, each parameter once; the result has the same bits on
  // all ranks.
  Tensor<const float, 1> partial_sums(const GradientBuckets& gradients, Stream& stream) {
    const bool whole = layout_.shards() == 1;
    const std::int64_t n = partials_.size() / ranks_.mesh().tensor_ranks;
    const Tensor<float, 1> own = make_tensor(partials_.data + ranks_.tensor_rank() * n, n);
    float* const pieces = whole ? own.data : own_pieces_.data;
    for (const OwnedRange& range : gradients.owned()) {
      squared_norm_partials<float>(pieces + range.shard_offset / kNormPiece, range.gradient,
                                   range.size, stream);
    }
    if (!whole) gather_shards(own, stream);
    if (ranks_.mesh().tensor_ranks > 1) gather_tensor_ranks(own, stream);
    return partials_;
  }

 private:
  // out = the partial sums of the shard group, in the order of the table.
  void gather_shards(const Tensor<float, 1>& out, Stream& stream) {
    ranks_.communicate(stream, [&] {
      ranks_.shard().all_gather<float>(all_pieces_, own_pieces_, ranks_.stream());
    });
    ranks_.lead(stream);
    for (const Bucket& bucket : layout_.buckets()) {
      partials_in_order(out.data + bucket.table_begin / kNormPiece,
                        all_pieces_.data + bucket.shard_offset / kNormPiece,
                        bucket.size / kNormPiece, bucket.piece / kNormPiece, own_pieces_.size(),
                        stream);
    }
  }

  // partials_ = those of all tensor ranks, in their order. The parameters that all of them hold
  // count on the first one.
  void gather_tensor_ranks(const Tensor<float, 1>& own, Stream& stream) {
    if (!ranks_.first_of_tensor_group()) {
      for (const Bucket& bucket : layout_.buckets()) {
        fill_zero(own.data + (bucket.table_begin + bucket.split) / kNormPiece,
                  (bucket.size - bucket.split) / kNormPiece, stream);
      }
    }
    ranks_.tensor(stream,
                  [&](Communicator& group) { group.all_gather<float>(partials_, own, stream); });
  }

  const ShardLayout& layout_;
  Ranks& ranks_;
  Tensor<float, 1> partials_;                 // of the tables of all tensor ranks
  Tensor<float, 1> own_pieces_, all_pieces_;  // of this rank's pieces; of the shard group's
};

}  // namespace llmc
