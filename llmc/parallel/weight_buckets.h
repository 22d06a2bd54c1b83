// The weights of a rank, in the dtype of the model.
//
// Stages 0 to 2 keep all of them, stage 3 the rank's pieces. A pass that acquires a block of
// pieces, or of offloaded weights, gets its whole buckets in a slot: they are gathered, or copied
// from the store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/state_array.h"

namespace llmc {

template <class T>
class WeightBuckets {
 public:
  // Reserves memory in the plan. The layout and the context must outlive the object.
  WeightBuckets(const ShardLayout& layout, Context& context, const OffloadPlace& place,
                MemoryPlan& plan)
      : layout_(layout), context_(context), ranks_(context.ranks) {
    kept_.reserve("weights", layout.shards_weights() ? layout.shard_size() : layout.whole_size(),
                  place, context, plan);
    if (!uses_slots()) return;
    for (Slot& slot : slots_) {
      plan.reserve("gathered weights", slot.weights, layout.largest_block(is_for_tokens(slot)));
    }
  }
  WeightBuckets(const WeightBuckets&) = delete;
  WeightBuckets& operator=(const WeightBuckets&) = delete;

  StateArray<T>& kept() { return kept_; }
  const StateArray<T>& kept() const { return kept_; }

  // Where the weights of a part that this rank owns begin among the kept ones.
  std::int64_t begin(const OwnedPart& part) const {
    return layout_.shards_weights() ? part.shard_offset : part.whole_offset;
  }
  // The same of this rank's piece of a bucket.
  std::int64_t begin(const Bucket& bucket) const {
    return layout_.shards_weights() ? bucket.shard_offset : layout_.own_piece(bucket);
  }

  // A whole parameter, between acquire and release of its block.
  const T* whole(const ParameterSpec& spec) const {
    if (!uses_slots()) return kept_.data() + layout_.whole_offset(spec);
    for (const Slot& slot : slots_) {
      if (slot.block != spec.block) continue;
      return slot.weights.data + layout_.bucket(spec).block_offset + layout_.bucket_offset(spec);
    }
    fail("a pass reads weights of block " + std::to_string(spec.block) + ", which is not acquired");
  }

  // Later work of `compute` may read the block. Begins to bring block `next` as well, unless that
  // is kNoBlock.
  void acquire(int block, int next, Stream& compute) {
    if (!uses_slots()) return;
    Slot& slot = filled(block, nullptr, compute);
    if (next != kNoBlock) filled(next, &slot, compute);
    if (slot.is_ready) return;
    slot.is_ready = true;
    if (layout_.shards_weights()) return ranks_.wait(compute, *slot.gathered);
    context_.timed(Phase::offload, [&] { context_.transfers().await(slot.arrived, compute); });
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
    if (kept_.is_resident()) {
      ranks_.communicate(compute, [&] {
        all_gather_buckets(layout_.trainable_buckets());
        if (with_frozen) all_gather_buckets(layout_.frozen_buckets());
      });
      return ranks_.wait_for_communication(compute);
    }
    all_gather_offloaded(layout_.trainable_buckets(), compute);
    if (with_frozen) all_gather_offloaded(layout_.frozen_buckets(), compute);
  }

 private:
  struct Slot {
    Tensor<T, 1> weights;   // the trainable and the frozen bucket of a block
    int block = kNoBlock;   // whose weights it holds
    TransferPoint arrived;  // from the store
    std::shared_ptr<Event> gathered = std::make_shared<Event>();
    bool is_ready = false;  // the compute stream has waited for the one or the other
    std::int64_t last_use = 0;
  };

  bool uses_slots() const { return layout_.shards_weights() || !kept_.is_resident(); }

  // The embeddings share a slot with a head that is not tied to them: a pass needs the embeddings
  // first and the head last.
  bool is_for_tokens(const Slot& slot) const { return &slot == &slots_[0]; }

  void all_gather_buckets(const std::vector<Bucket>& buckets) {
    for (const Bucket& bucket : buckets) {
      if (bucket.is_held)
        all_gather(bucket, kept_.data() + bucket.whole_offset,
                   kept_.data() + layout_.own_piece(bucket));
    }
  }

  // whole: the bucket, which has room for `stored` weights. own: the rank's piece, which may be its
  // place there.
  void all_gather(const Bucket& bucket, T* whole, const T* own) {
    ranks_.shard().all_gather<T>(make_tensor(whole, bucket.stored), make_tensor(own, bucket.piece),
                                 ranks_.stream());
  }

  // Bucket by bucket: the rank's piece arrives in a slot, is gathered there, and the whole leaves.
  void all_gather_offloaded(const std::vector<Bucket>& buckets, Stream& compute) {
    Transfers& transfers = context_.transfers();
    for (std::size_t block = 0; block < buckets.size(); ++block) {
      const Bucket& bucket = buckets[block];
      if (!bucket.is_held) continue;
      Slot& slot = slots_[layout_.has_tokens(block) ? 0 : 1];
      context_.timed(Phase::offload, [&] {
        transfers.follow(compute);
        fetch_piece(bucket, slot.weights.data);
        transfers.mark(slot.arrived);
      });
      ranks_.communicate(compute, [&] {
        transfers.await(slot.arrived, ranks_.stream());
        all_gather_piece(bucket, slot.weights.data);
      });
      context_.timed(Phase::offload, [&] {
        transfers.follow(ranks_.stream());
        kept_.put(bucket.whole_offset, slot.weights.data, bucket.stored);
        transfers.mark(slot.arrived);
        transfers.await(slot.arrived, compute);  // later gathers into the slot follow it
      });
    }
  }

  // Copies the rank's piece to its place in the whole bucket, and gathers that.
  void fetch_piece(const Bucket& bucket, T* whole) {
    kept_.fetch(whole + layout_.index() * bucket.piece, begin(bucket), bucket.piece);
  }
  void all_gather_piece(const Bucket& bucket, T* whole) {
    all_gather(bucket, whole, whole + layout_.index() * bucket.piece);
  }

  // The slot of a block. If there is none, fills the one that was not used for longest, other than
  // `kept`. That comes after the present work of `compute`, which may still read the block that was
  // in the slot.
  Slot& filled(int block, const Slot* kept, Stream& compute) {
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
    const auto buckets = layout_.held_buckets(static_cast<std::size_t>(block));
    if (!kept_.is_resident()) fetch(slot, buckets, compute);
    if (layout_.shards_weights()) gather(slot, buckets, compute);
    slot.block = block;
    slot.is_ready = false;
    return slot;
  }

  // Copies kept weights of a block from the store into the slot.
  void fetch(Slot& slot, const std::vector<const Bucket*>& buckets, Stream& compute) {
    Transfers& transfers = context_.transfers();
    context_.timed(Phase::offload, [&] {
      transfers.follow(compute);
      transfers.follow(slot.gathered);  // which no pass may have waited for
      for (const Bucket* bucket : buckets) {
        T* const whole = slot.weights.data + bucket->block_offset;
        if (layout_.shards_weights()) {
          fetch_piece(*bucket, whole);
        } else {
          kept_.fetch(whole, bucket->whole_offset, bucket->stored);
        }
      }
      transfers.mark(slot.arrived);
    });
  }

  void gather(Slot& slot, const std::vector<const Bucket*>& buckets, Stream& compute) {
    ranks_.communicate(compute, [&] {
      if (!kept_.is_resident()) context_.transfers().await(slot.arrived, ranks_.stream());
      for (const Bucket* bucket : buckets) {
        T* const whole = slot.weights.data + bucket->block_offset;
        if (kept_.is_resident()) {
          all_gather(*bucket, whole, kept_.data() + bucket->shard_offset);
        } else {
          all_gather_piece(*bucket, whole);
        }
      }
    });
    // A transfer may still wait for the event of an earlier gather.
    if (!kept_.is_resident()) slot.gathered = std::make_shared<Event>();
    slot.gathered->record(ranks_.stream());
  }

  const ShardLayout& layout_;
  Context& context_;
  Ranks& ranks_;
  StateArray<T> kept_;
  std::array<Slot, 3> slots_;  // the first is for blocks with a row per token
  std::int64_t num_uses_ = 0;
  std::int64_t version_ = 0;
};

}  // namespace llmc
