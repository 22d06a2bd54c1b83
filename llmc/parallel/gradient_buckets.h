// The gradients of a rank: where passes add them, and their sum over the ranks. Frozen parameters
// have none, and a bucket in this file is the trainable one of its block.
//
// Stages 0 and 1 keep whole gradients and reduce the bucket of each block once per step, as soon as
// the backward pass of the last micro-batch has added to it. Stage 2 and 3 keep only the rank's
// pieces: passes add to a slot that holds one whole bucket, which is reduced after every
// micro-batch. Reductions run on the communication stream, next to the backward pass of the next
// block.
//
// If the rows of the residual stream are spread over the tensor ranks, each of them computes only
// its rows' part of the gradients of norms, row biases and positions. These parts are added up
// before the bucket is reduced.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/ops/residual_add.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

// Elements of this rank's piece of one or more neighbouring buckets, contiguous in every array that
// has them.
struct OwnedRange {
  const float* gradient = nullptr;
  std::int64_t shard_offset = 0;
  std::int64_t size = 0;
};

class GradientBuckets {
 public:
  // Reserves memory in the plan. `sequence_parallel`: whether tensor ranks have different rows of
  // the residual stream. The layout and the ranks must outlive the object. `head`: the
  // weight of the logits in the parameter table.
  GradientBuckets(const ShardLayout& layout, const ParameterSpec& head, bool sequence_parallel,
                  Ranks& ranks, MemoryPlan& plan)
      : layout_(layout), head_(head), sequence_parallel_(sequence_parallel), ranks_(ranks) {
    plan.reserve(
        "gradients", kept_,
        layout.shards_gradients() ? layout.trainable_shard_size() : layout.trainable_whole_size());
    if (!layout.shards_gradients()) return;
    const std::int64_t with_tokens = layout.largest_trainable_block(true);
    const std::int64_t others = layout.largest_trainable_block(false);
    for (Slot& slot : slots_) {
      plan.reserve("gradient buckets", slot.bucket, &slot == &slots_[0] ? with_tokens : others);
    }
    plan.reserve("gradient buckets", sum_, std::max(with_tokens, others) / layout.shards());
  }
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const Tensor<float, 1>& kept() const { return kept_; }

  // Clears the gradients for a step of this many micro-batches, whose passes run on `compute`.
  void begin_step(std::int64_t micro_batches, Stream& compute) {
    compute_ = &compute;
    micro_batches_ = micro_batches;
    passes_.assign(layout_.trainable_buckets().size(), 0);
    for (Slot& slot : slots_) slot.block = -1;
    fill_zero(kept_.data, kept_.size(), compute);
  }

  // The gradient of a parameter, in whole, to which a pass adds; null if it is frozen.
  float* gradient(const ParameterSpec& spec) {
    if (!spec.trainable) return nullptr;
    if (!layout_.shards_gradients()) return kept_.data + layout_.whole_offset(spec);
    return slot_of(spec.block).bucket.data + layout_.bucket_offset(spec);
  }

  // The backward pass of a micro-batch has added to all gradients of the block.
  void ready(int block) {
    const std::int64_t passes = ++passes_[static_cast<std::size_t>(block)];
    if (ranks_.single() || (!layout_.shards_gradients() && passes < micro_batches_)) return;
    if (!bucket_of(block).is_held) return;
    if (sequence_parallel_) all_reduce_copies(bucket_of(block), block);
    reduce(block);
  }

  // Later work of the compute stream sees the sums over all ranks.
  void finish() {
    if (ranks_.single()) return;
    const bool is_shared = head_.block == kEmbeddingBlock && head_.trainable;
    if (ranks_.embeddings() != nullptr && is_shared) all_reduce_embeddings();
    ranks_.wait_for_communication(*compute_);
  }

  // The reduced gradients that this rank owns, in the order of its shard.
  std::vector<OwnedRange> owned() const {
    if (layout_.shards_gradients() || layout_.shards() == 1) {
      return {{kept_.data, 0, layout_.trainable_shard_size()}};
    }
    std::vector<OwnedRange> ranges;
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      ranges.push_back({kept_.data + layout_.own_piece(bucket), bucket.shard_offset, bucket.piece});
    }
    return ranges;
  }

  // The reduced gradient of a part that this rank owns.
  float* owned(const OwnedPart& part) const {
    return kept_.data + (layout_.shards_gradients() ? part.shard_offset : part.whole_offset);
  }

 private:
  const Bucket& bucket_of(int block) const {
    return layout_.trainable_buckets()[static_cast<std::size_t>(block)];
  }

  // A whole bucket of gradients while passes add to it and while it is reduced.
  struct Slot {
    Tensor<float, 1> bucket;
    int block = -1;  // -1: no pass adds to it
    Event reduced;
    bool was_used = false;
  };

  // The slot of a block; a pass that adds to a block first gets a cleared one. Passes add to a tied
  // wte first and last, so the embeddings have a slot of their own. A head that is not tied to them
  // uses it before them.
  Slot& slot_of(int block) {
    for (Slot& slot : slots_) {
      if (slot.block == block) return slot;
    }
    const bool has_tokens = layout_.has_tokens(static_cast<std::size_t>(block));
    Slot& slot = has_tokens ? slots_[0] : slots_[next_slot_];
    if (!has_tokens) next_slot_ = 3 - next_slot_;
    require(slot.block == -1,
            "passes add to more blocks at a time than there are gradient buckets");
    if (slot.was_used) ranks_.wait(*compute_, slot.reduced);
    slot.block = block;
    fill_zero(slot.bucket.data, bucket_of(block).stored, *compute_);
    return slot;
  }

  // The gradients of parameters that all tensor ranks hold become sums over the tensor ranks.
  void all_reduce_copies(const Bucket& bucket, int block) {
    if (bucket.copied == 0) return;
    float* const whole =
        layout_.shards_gradients() ? slot_of(block).bucket.data : kept_.data + bucket.whole_offset;
    ranks_.tensor(*compute_, [&](Communicator& group) {
      group.all_reduce(make_tensor(whole + bucket.split, bucket.copied), *compute_);
    });
  }

  void reduce(int block) {
    const Bucket& bucket = bucket_of(block);
    if (!layout_.shards_gradients()) {
      return ranks_.communicate(*compute_, [&] {
        reduce_to_piece(make_tensor(kept_.data + layout_.own_piece(bucket), bucket.piece),
                        kept_.data + bucket.whole_offset);
      });
    }
    Slot& slot = slot_of(block);
    ranks_.communicate(*compute_, [&] { reduce_slot(bucket, slot); });
  }

  void reduce_slot(const Bucket& bucket, Slot& slot) {
    const Tensor<float, 1> kept = make_tensor(kept_.data + bucket.shard_offset, bucket.piece);
    if (passes_[static_cast<std::size_t>(slot.block)] == 1) {
      reduce_to_piece(kept, slot.bucket.data);
    } else {
      const Tensor<float, 1> sum = make_tensor(sum_.data, bucket.piece);
      reduce_to_piece(sum, slot.bucket.data);
      const auto rows = [&](const Tensor<float, 1>& x) {
        return make_tensor(x.data, bucket.piece / kParameterAlignment, kParameterAlignment);
      };
      residual_add<float>(rows(kept), rows(kept), rows(sum), ranks_.stream());
    }
    slot.reduced.record(ranks_.stream());
    slot.was_used = true;
    slot.block = -1;
  }

  // The embedding and a tied head, on two pipeline ranks, have both added to the gradient of wte.
  // The sum of the two, first that of the embedding, is on both.
  void all_reduce_embeddings() {
    const OwnedPart part = layout_.own_part(head_);
    ranks_.communicate(
        *compute_,
        [&] {
          ranks_.embeddings()->all_reduce(make_tensor(owned(part), part.size), ranks_.stream());
        },
        Phase::pipeline_communication);
  }

  // piece = this rank's piece of the sum of `whole` over all ranks.
  void reduce_to_piece(Tensor<float, 1> piece, float* whole) {
    if (layout_.shards() > 1) {
      ranks_.shard().reduce_scatter(piece, make_tensor(whole, piece.size() * layout_.shards()),
                                    ranks_.stream());
    }
    Communicator& replicas = layout_.shards() > 1 ? ranks_.replica() : ranks_.data();
    replicas.all_reduce(piece, ranks_.stream());
  }

  const ShardLayout& layout_;
  const ParameterSpec& head_;
  bool sequence_parallel_;
  Ranks& ranks_;
  Tensor<float, 1> kept_;
  std::array<Slot, 3> slots_;  // the first is for blocks with a row per token
  Tensor<float, 1> sum_;
  int next_slot_ = 1;
  Stream* compute_ = nullptr;
  std::int64_t micro_batches_ = 1;
  std::vector<std::int64_t> passes_;  // backward passes that have added to each block
};

}  // namespace llmc
