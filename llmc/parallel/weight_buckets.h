// The weights of a rank, in the dtype of the model.
//
// Stages 0 to 2 keep all of them. Stage 3 keeps the rank's pieces; a pass that acquires a block
// gets its whole buckets, gathered into a slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

template <class T>
class WeightBuckets {
 public:
  // Reserves memory in the plan. The layout and the ranks must outlive the object.
  WeightBuckets(const ShardLayout& layout, Ranks& ranks, MemoryPlan& plan)
      : layout_(layout), ranks_(ranks) {
    plan.reserve("weights", kept_,
                 layout.shards_weights() ? layout.shard_size() : layout.whole_size());
    if (!layout.shards_weights()) return;
    for (Slot& slot : slots_) {
      plan.reserve("gathered weights", slot.weights, layout.largest_block(is_for_tokens(slot)));
    }
  }
  WeightBuckets(const WeightBuckets&) = delete;
  WeightBuckets& operator=(const WeightBuckets&) = delete;

  const Tensor<T, 1>& kept() const { return kept_; }

  // The weights of a part that this rank owns.
  T* owned(const OwnedPart& part) const {
    return kept_.data + (layout_.shards_weights() ? part.shard_offset : part.whole_offset);
  }

  // A whole parameter, between acquire and release of its block.
  const T* whole(const ParameterSpec& spec) const {
    if (!layout_.shards_weights()) return kept_.data + layout_.whole_offset(spec);
    for (const Slot& slot : slots_) {
      if (slot.block != spec.block) continue;
      return slot.weights.data + layout_.bucket(spec).block_offset + layout_.bucket_offset(spec);
    }
    fail("a pass reads weights of block " + std::to_string(spec.block) + ", which is not acquired");
  }

  // Later work of `compute` may read the block. Begins to gather block `next` as well, unless that
  // is kNoBlock.
  void acquire(int block, int next, Stream& compute) {
    if (!layout_.shards_weights()) return;
    Slot& slot = gathered(block, nullptr, compute);
    if (!slot.is_ready) ranks_.wait(compute, slot.gathered);
    slot.is_ready = true;
    if (next != kNoBlock) gathered(next, &slot, compute);
  }

  // Changes with every change of the weights.
  std::int64_t version() const { return version_; }

  // Call after kept weights have changed: blocks are gathered again.
  void forget() {
    ++version_;
    for (Slot& slot : slots_) slot.block = kNoBlock;
  }

  // Call after the rank's own parts have changed on `compute`: the whole weights follow.
  // `with_frozen`: those of frozen parameters have changed too.
  void all_gather(Stream& compute, bool with_frozen = false) {
    forget();
    if (layout_.shards() == 1 || layout_.shards_weights()) return;
    ranks_.communicate(compute, [&] {
      all_gather_buckets(layout_.trainable_buckets());
      if (with_frozen) all_gather_buckets(layout_.frozen_buckets());
    });
    ranks_.wait_for_communication(compute);
  }

 private:
  struct Slot {
    Tensor<T, 1> weights;  // the trainable and the frozen bucket of a block
    int block = kNoBlock;  // whose weights it holds
    Event gathered;
    bool is_ready = false;  // the compute stream has waited for `gathered`
    std::int64_t last_use = 0;
  };

  // The embeddings share a slot with a head that is not tied to them: a pass needs the embeddings
  // first and the head last.
  bool is_for_tokens(const Slot& slot) const { return &slot == &slots_[0]; }

  void all_gather_buckets(const std::vector<Bucket>& buckets) {
    for (const Bucket& bucket : buckets) {
      if (bucket.is_held)
        all_gather(bucket, kept_.data + bucket.whole_offset, layout_.own_piece(bucket));
    }
  }

  // whole: the bucket, which has room for `stored` weights; own: the place of the rank's piece in
  // the kept weights.
  void all_gather(const Bucket& bucket, T* whole, std::int64_t own) {
    ranks_.shard().all_gather<T>(make_tensor(whole, bucket.stored),
                                 make_tensor(kept_.data + own, bucket.piece), ranks_.stream());
  }

  // The slot of a block. If there is none, gathers the block into the slot that was not used for
  // longest, other than `kept`. The gather comes after the present work of `compute`, which may
  // still read the block that was in the slot.
  Slot& gathered(int block, const Slot* kept, Stream& compute) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
      const bool fits = layout_.has_tokens(static_cast<std::size_t>(block)) == is_for_tokens(slot);
      if (slot.block == block) oldest = &slot;
      if (slot.block == block) break;
      if (!fits || &slot == kept) continue;
      if (oldest == nullptr || slot.last_use < oldest->last_use) oldest = &slot;
    }
    Slot& slot = *oldest;
    slot.last_use = ++num_uses_;
    if (slot.block == block) return slot;
    ranks_.communicate(compute, [&] {
      for (const Bucket* bucket : layout_.held_buckets(static_cast<std::size_t>(block))) {
        all_gather(*bucket, slot.weights.data + bucket->block_offset, bucket->shard_offset);
      }
    });
    slot.gathered.record(ranks_.stream());
    slot.block = block;
    slot.is_ready = false;
    return slot;
  }

  const ShardLayout& layout_;
  Ranks& ranks_;
  Tensor<T, 1> kept_;
  std::array<Slot, 3> slots_;  // the first is for blocks with a row per token
  std::int64_t num_uses_ = 0;
  std::int64_t version_ = 0;
};

}  // namespace llmc
