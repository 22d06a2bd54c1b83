// The global norm of the gradients of trainable parameters, on several ranks: partial sums of the
// pieces that each rank owns, gathered and added in one order, so that the norm and what depends on
// it have the same bits on every rank.
#pragma once

#include <cstdint>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/optimizer/partials_in_order.h"
#include "llmc/parallel/gradient_buckets.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

class GradientNorm {
 public:
  // Reserves memory in the plan. The table, its layout and the ranks must outlive the object.
  GradientNorm(const ParameterTable& table, const ShardLayout& layout, Ranks& ranks,
               MemoryPlan& plan)
      : table_(table), layout_(layout), ranks_(ranks) {
    plan.reserve("staging", partials_,
                 ranks.mesh().tensor_ranks * squared_norm_count(table.trainable_size()));
    if (has_all()) return;
    const std::int64_t n = squared_norm_count(layout.trainable_shard_size());
    plan.reserve("staging", own_pieces_, n);
    if (layout.shards() > 1) plan.reserve("staging", all_pieces_, n * layout.shards());
  }
  GradientNorm(const GradientNorm&) = delete;
  GradientNorm& operator=(const GradientNorm&) = delete;

  // Where the partial sums of this rank's pieces are; usable after plan.allocate().
  float* own_sums() const {
    if (!has_all()) return own_pieces_.data;
    return partials_.data + ranks_.tensor_rank() * partials_.size() / ranks_.mesh().tensor_ranks;
  }

  // Returns the partial sums of all gradients, each trainable parameter once; the result has the
  // same bits on all ranks.
  Tensor<const float, 1> partial_sums(GradientBuckets& gradients, Stream& stream) {
    const std::int64_t n = partials_.size() / ranks_.mesh().tensor_ranks;
    const Tensor<float, 1> own = make_tensor(partials_.data + ranks_.tensor_rank() * n, n);
    if (!gradients.has_norm_sums()) sum_squares(gradients, stream);
    if (!has_all()) put_in_order(own, gather_shards(stream), stream);
    if (ranks_.mesh().pipeline_ranks > 1) ranks_.all_reduce_over_pipeline(own, stream);
    if (ranks_.mesh().tensor_ranks > 1) gather_tensor_ranks(own, stream);
    return partials_;
  }

 private:
  // Whether the pieces of this rank are all trainable parameters.
  bool has_all() const { return layout_.shards() == 1 && ranks_.mesh().pipeline_ranks == 1; }

  // Those of gradients on the device.
  void sum_squares(GradientBuckets& gradients, Stream& stream) {
    for (const OwnedRange& range : gradients.owned()) {
      if (range.size == 0) continue;
      squared_norm_partials<float>(own_sums() + range.shard_offset / kNormPiece,
                                   gradients.kept().data() + range.first, range.size, stream);
    }
  }

  // Returns the partial sums of the shard group, rank by rank.
  Tensor<const float, 1> gather_shards(Stream& stream) {
    if (layout_.shards() == 1 || own_pieces_.size() == 0) return own_pieces_;
    ranks_.communicate(stream, [&] {
      ranks_.shard().all_gather<float>(all_pieces_, own_pieces_, ranks_.stream());
    });
    ranks_.wait_for_communication(stream);
    return all_pieces_;
  }

  // out = the partial sums in the order of the table, and 0 for parameters that count on another
  // pipeline rank.
  void put_in_order(const Tensor<float, 1>& out, const Tensor<const float, 1>& pieces,
                    Stream& stream) {
    const bool is_part = ranks_.mesh().pipeline_ranks > 1;
    if (is_part) fill_zero(out.data, out.size(), stream);
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      partials_in_order(out.data + bucket.table_begin / kNormPiece,
                        pieces.data + bucket.shard_offset / kNormPiece, bucket.size / kNormPiece,
                        bucket.piece / kNormPiece, own_pieces_.size(), stream);
    }
    for (const ParameterSpec& spec : table_.specs()) {
      if (!spec.trainable || !spec.is_held || spec.first_holder == ranks_.pipeline_rank()) continue;
      fill_zero(out.data + spec.offset / kNormPiece, squared_norm_count(spec.stored_size()),
                stream);
    }
  }

  // partials_ = those of all tensor ranks, in their order. The parameters that all of them hold
  // count on the first one.
  void gather_tensor_ranks(const Tensor<float, 1>& own, Stream& stream) {
    if (!ranks_.first_of_tensor_group()) {
      for (const Bucket& bucket : layout_.trainable_buckets()) {
        fill_zero(own.data + (bucket.table_begin + bucket.split) / kNormPiece,
                  (bucket.size - bucket.split) / kNormPiece, stream);
      }
    }
    ranks_.tensor(stream,
                  [&](Communicator& group) { group.all_gather<float>(partials_, own, stream); });
  }

  const ParameterTable& table_;
  const ShardLayout& layout_;
  Ranks& ranks_;
  Tensor<float, 1> partials_;                 // of the tables of all tensor ranks
  Tensor<float, 1> own_pieces_, all_pieces_;  // of this rank's pieces; of the shard group's
};

}  // namespace llmc
