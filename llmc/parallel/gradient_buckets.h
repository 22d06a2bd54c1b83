// The gradients of a rank: where passes add them, and their sum over the ranks. Frozen parameters
// have none, and a bucket in this file is the trainable one of its block.
//
// Stages 0 and 1 keep whole gradients and reduce the bucket of each block once per step, as soon as
// the backward pass of the last micro-batch has added to it. Stage 2 and 3 keep only the rank's
// pieces: passes add to a slot that holds one whole bucket, which is reduced after every
// micro-batch. Reductions run on the communication stream, next to the next block's backward pass.
//
// Passes also add to slots if gradients are offloaded. A slot of whole gradients first receives the
// sum of the micro-batches before, and leaves after each, so the order of additions stays.
//
// If the rows of the residual stream are spread over the tensor ranks, each computes only its rows'
// part of the gradients of norms, row biases and positions, which are added up before the bucket
// is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/parameter_source.h"
#include "llmc/ops/residual_add.h"
#include "llmc/parallel/leaving_gradients.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/state_array.h"
#include "llmc/parallel/unwritten_gradients.h"

namespace llmc {

class GradientBuckets {
 public:
  // Reserves memory in the plan. `sequence_parallel`: whether tensor ranks have different rows of
  // the residual stream. The table, its layout and the context must outlive the object.
  GradientBuckets(const ParameterTable& table, const ShardLayout& layout, bool sequence_parallel,
                  Context& context, const OffloadPlaces& offload, MemoryPlan& plan)
      : layout_(layout),
        unwritten_(table, layout, kept_),
        head_(table.head()),
        sequence_parallel_(sequence_parallel),
        context_(context),
        ranks_(context.ranks),
        leaving_(layout.trainable_shard_size(), context, offload, plan) {
    kept_.reserve(
        "gradients",
        layout.shards_gradients() ? layout.trainable_shard_size() : layout.trainable_whole_size(),
        offload.gradients, context, plan);
    if (!uses_slots()) return;
    const std::int64_t with_tokens = layout.largest_trainable_block(true);
    const std::int64_t others = layout.largest_trainable_block(false);
    for (Slot& slot : slots_) {
      plan.reserve("gradient buckets", slot.bucket, &slot == &slots_[0] ? with_tokens : others);
    }
    if (!layout.shards_gradients()) return;
    const std::int64_t piece = std::max(with_tokens, others) / layout.shards();
    plan.reserve("gradient buckets", sum_, piece);
    if (!kept_.is_resident()) plan.reserve("gradient buckets", piece_, piece);
  }
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  StateArray<float>& kept() { return kept_; }

  // Clears the gradients for a step of this many micro-batches, whose passes run on `compute`.
  // `norm_sums`: see LeavingGradients.
  void begin_step(std::int64_t micro_batches, float* norm_sums, Stream& compute) {
    compute_ = &compute;
    micro_batches_ = micro_batches;
    leaving_.begin_step(norm_sums, compute);
    passes_.assign(layout_.trainable_buckets().size(), 0);
    for (Slot& slot : slots_) slot.block = -1;
    if (!uses_slots()) return unwritten_.begin_step(compute);
    if (kept_.is_resident()) fill_zero(kept_.data(), kept_.size(), compute);
  }
  // Bytes that begin_step() writes.
  double bytes_to_clear() const {
    if (!uses_slots()) return unwritten_.bytes_to_clear();
    return kept_.is_resident() ? sizeof(float) * static_cast<double>(kept_.size()) : 0;
  }

  // The gradient of a parameter, in whole, to which a pass adds; null if it is frozen.
  float* gradient(const ParameterSpec& spec) {
    if (!spec.trainable) return nullptr;
    if (uses_slots()) return slot_of(spec.block).bucket.data + layout_.bucket_offset(spec);
    unwritten_.clear(spec);
    return kept_.data() + layout_.whole_offset(spec);
  }
  // See ParameterSource.
  bool begins(const ParameterSpec& spec) { return !uses_slots() && unwritten_.take(spec); }

  // A pass is about to add to the block: begins to bring its sum of earlier micro-batches.
  void prefetch(int block) {
    if (has_sum(block) && !has_slot(block)) take_slot(block);
  }

  // The backward pass of a micro-batch has added to all gradients of the block.
  void ready(int block) {
    unwritten_.clear_block(static_cast<std::size_t>(block));
    const bool is_last = ++passes_[static_cast<std::size_t>(block)] == micro_batches_;
    if (!bucket_of(block).is_held) return;
    if (!ranks_.single() && (layout_.shards_gradients() || is_last)) {
      if (sequence_parallel_) all_reduce_copies(bucket_of(block), block);
      reduce(block);
    }
    if (!kept_.is_resident() && !layout_.shards_gradients()) leave(block, is_last);
    if (kept_.is_resident() && is_last) {
      leave_reduced(bucket_of(block), kept_.data() + begin(bucket_of(block)));
    }
  }

  // Whether the sums of squares for the norm are computed as gradients leave.
  bool has_norm_sums() const { return leaving_.has_sums(); }
  // The rank's piece of a bucket in host memory, if the CPU updates the weights. It waits for the
  // transfers before.
  const float* on_host(const Bucket& bucket) const {
    if (leaving_.has_copy()) return leaving_.copy(bucket.shard_offset);
    return static_cast<const float*>(kept_.on_host(begin(bucket)));
  }

  // Later work of the compute stream sees the sums over all ranks.
  void finish() {
    unwritten_.clear_all();
    if (ranks_.single()) return;
    const bool is_shared = head_.block == kEmbeddingBlock && head_.trainable;
    if (ranks_.embeddings() != nullptr && is_shared) all_reduce_embeddings();
    ranks_.wait_for_communication(*compute_);
  }

  // The reduced gradients that this rank owns, in the order of its shard.
  std::vector<OwnedRange> owned() const {
    if (layout_.shards_gradients() || layout_.shards() == 1) {
      return {{0, 0, layout_.trainable_shard_size()}};
    }
    std::vector<OwnedRange> ranges;
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      ranges.push_back({begin(bucket), bucket.shard_offset, bucket.piece});
    }
    return ranges;
  }

  // Where the reduced gradients of a part that this rank owns, or of its piece of a bucket, begin
  // among the kept ones.
  std::int64_t begin(const OwnedPart& part) const {
    return layout_.shards_gradients() ? part.shard_offset : part.whole_offset;
  }
  std::int64_t begin(const Bucket& bucket) const {
    return layout_.shards_gradients() ? bucket.shard_offset : layout_.own_piece(bucket);
  }

 private:
  const Bucket& bucket_of(int block) const {
    return layout_.trainable_buckets()[static_cast<std::size_t>(block)];
  }

  // A whole bucket of gradients while passes add to it and while it is reduced.
  struct Slot {
    Tensor<float, 1> bucket;
    int block = -1;        // -1: no pass adds to it
    TransferPoint filled;  // with the sum of earlier micro-batches
    bool is_ready = true;
    Event reduced;
    TransferPoint left;  // it is in the store
    bool was_used = false;
  };

  bool uses_slots() const { return layout_.shards_gradients() || !kept_.is_resident(); }
  // Whether the store has the sum of earlier micro-batches, to which a pass adds in the slot.
  bool has_sum(int block) const {
    return !kept_.is_resident() && !layout_.shards_gradients() && bucket_of(block).is_held &&
           passes(block) > 0;
  }
  bool has_slot(int block) const {
    return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.block == block; });
  }

  // The slot of a block. A pass that adds to a block first gets a cleared one, or one with the sum
  // of earlier micro-batches.
  Slot& slot_of(int block) {
    for (Slot& slot : slots_) {
      if (slot.block != block) continue;
      if (!slot.is_ready) await(slot.filled);
      slot.is_ready = true;
      return slot;
    }
    take_slot(block);
    return slot_of(block);
  }

  // Passes add to a tied wte first and last, so the embeddings have a slot of their own. A head
  // that is not tied to them uses it before them.
  void take_slot(int block) {
    const bool has_tokens = layout_.has_tokens(static_cast<std::size_t>(block));
    Slot& slot = has_tokens ? slots_[0] : slots_[next_slot_];
    if (!has_tokens) next_slot_ = 3 - next_slot_;
    require(slot.block == -1,
            "passes add to more blocks at a time than there are gradient buckets");
    slot.block = block;
    const Bucket& bucket = bucket_of(block);
    if (has_sum(block)) {
      slot.is_ready = false;
      return context_.timed(Phase::offload, [&] {
        context_.transfers().follow(*compute_);
        kept_.fetch(slot.bucket.data, bucket.whole_offset, bucket.stored);
        context_.transfers().mark(slot.filled);
      });
    }
    if (slot.was_used) wait_for_release(slot);
    fill_zero(slot.bucket.data, bucket.stored, *compute_);
  }

  void wait_for_release(Slot& slot) {
    if (kept_.is_resident()) return ranks_.wait(*compute_, slot.reduced);
    await(slot.left);
  }

  void await(const TransferPoint& point) {
    context_.timed(Phase::offload, [&] { context_.transfers().await(point, *compute_); });
  }

  // The stream in whose order sums over all ranks are complete.
  Stream& reduction_stream() { return ranks_.single() ? *compute_ : ranks_.stream(); }

  // The rank's piece of a bucket is complete at `own`.
  void leave_reduced(const Bucket& bucket, const float* own) {
    leaving_.leave(bucket.shard_offset, own, bucket.piece, reduction_stream());
  }

  // The slot of whole gradients goes to the store. After the last micro-batch of a step, only the
  // rank's piece of it is needed.
  void leave(int block, bool is_last) {
    const Bucket& bucket = bucket_of(block);
    Slot& slot = slot_of(block);
    const std::int64_t own = layout_.index() * bucket.piece;
    if (is_last) leave_reduced(bucket, slot.bucket.data + own);
    context_.timed(Phase::offload, [&] {
      Transfers& transfers = context_.transfers();
      transfers.follow(is_last ? reduction_stream() : *compute_);
      if (is_last) {
        kept_.put(bucket.whole_offset + own, slot.bucket.data + own, bucket.piece);
      } else {
        kept_.put(bucket.whole_offset, slot.bucket.data, bucket.stored);
      }
      transfers.mark(slot.left);
      release(slot);
    });
  }

  void release(Slot& slot) {
    slot.was_used = true;
    slot.block = -1;
  }

  // The gradients of parameters that all tensor ranks hold become sums over the tensor ranks.
  void all_reduce_copies(const Bucket& bucket, int block) {
    if (bucket.copied == 0) return;
    float* const whole =
        uses_slots() ? slot_of(block).bucket.data : kept_.data() + bucket.whole_offset;
    ranks_.tensor(*compute_, [&](Communicator& group) {
      group.all_reduce(make_tensor(whole + bucket.split, bucket.copied), *compute_);
    });
  }

  void reduce(int block) {
    const Bucket& bucket = bucket_of(block);
    if (layout_.shards_gradients()) {
      return kept_.is_resident() ? reduce_slot(bucket, slot_of(block))
                                 : reduce_to_store(bucket, slot_of(block));
    }
    float* const whole =
        uses_slots() ? slot_of(block).bucket.data : kept_.data() + bucket.whole_offset;
    ranks_.communicate(*compute_, [&] { reduce_in_place(bucket, whole); });
  }

  // The rank's piece of `whole` becomes its piece of the sum over all ranks. Returns the piece.
  float* reduce_in_place(const Bucket& bucket, float* whole) {
    float* const own = whole + layout_.index() * bucket.piece;
    reduce_to_piece(make_tensor(own, bucket.piece), whole);
    return own;
  }

  void reduce_slot(const Bucket& bucket, Slot& slot) {
    ranks_.communicate(*compute_, [&] {
      const Tensor<float, 1> kept = make_tensor(kept_.data() + bucket.shard_offset, bucket.piece);
      if (is_first_pass(slot)) {
        reduce_to_piece(kept, slot.bucket.data);
      } else {
        const Tensor<float, 1> sum = make_tensor(sum_.data, bucket.piece);
        reduce_to_piece(sum, slot.bucket.data);
        add_to(kept, sum);
      }
      slot.reduced.record(ranks_.stream());
      release(slot);
    });
  }

  // The same if the rank's pieces are in the store.
  void reduce_to_store(const Bucket& bucket, Slot& slot) {
    Transfers& transfers = context_.transfers();
    const Tensor<float, 1> piece = make_tensor(piece_.data, bucket.piece);
    const bool is_first = is_first_pass(slot);
    if (!is_first) {
      context_.timed(Phase::offload, [&] {
        kept_.fetch(piece.data, bucket.shard_offset, bucket.piece);
        transfers.mark(slot.filled);
      });
    }
    const float* own = piece.data;
    ranks_.communicate(*compute_, [&] {
      if (is_first) {
        own = reduce_in_place(bucket, slot.bucket.data);
      } else {
        const Tensor<float, 1> sum = make_tensor(sum_.data, bucket.piece);
        reduce_to_piece(sum, slot.bucket.data);
        transfers.await(slot.filled, ranks_.stream());
        add_to(piece, sum);
      }
    });
    if (passes(slot.block) == micro_batches_) leave_reduced(bucket, own);
    context_.timed(Phase::offload, [&] {
      transfers.follow(ranks_.stream());
      kept_.put(bucket.shard_offset, own, bucket.piece);
      transfers.mark(slot.left);
      release(slot);
    });
  }

  std::int64_t passes(int block) const { return passes_[static_cast<std::size_t>(block)]; }
  bool is_first_pass(const Slot& slot) const { return passes(slot.block) == 1; }

  void add_to(const Tensor<float, 1>& kept, const Tensor<float, 1>& addend) {
    const auto rows = [&](const Tensor<float, 1>& x) {
      return make_tensor(x.data, x.size() / kParameterAlignment, kParameterAlignment);
    };
    residual_add<float>(rows(kept), rows(kept), rows(addend), ranks_.stream());
  }

  // The embedding and a tied head, on two pipeline ranks, have both added to the gradient of wte.
  // The sum of the two, first that of the embedding, is on both.
  void all_reduce_embeddings() {
    const OwnedPart part = layout_.own_part(head_);
    Transfers* const transfers = kept_.is_resident() ? nullptr : &context_.transfers();
    Slot& slot = slots_[0];
    float* const values = transfers == nullptr ? kept_.data() + begin(part) : slot.bucket.data;
    if (transfers != nullptr) {
      context_.timed(Phase::offload, [&] {
        kept_.fetch(values, begin(part), part.size);
        transfers->mark(slot.filled);
      });
    }
    ranks_.communicate(
        *compute_,
        [&] {
          if (transfers != nullptr) transfers->await(slot.filled, ranks_.stream());
          leaving_.await(ranks_.stream());
          ranks_.embeddings()->all_reduce(make_tensor(values, part.size), ranks_.stream());
        },
        Phase::pipeline_communication);
    leaving_.leave(part.shard_offset, values, part.size, ranks_.stream());
    if (transfers == nullptr) return;
    context_.timed(Phase::offload, [&] {
      transfers->follow(ranks_.stream());
      kept_.put(begin(part), values, part.size);
      transfers->mark(slot.left);
      release(slot);
    });
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
  UnwrittenGradients unwritten_;  // if no slots are used
  const ParameterSpec& head_;
  bool sequence_parallel_;
  Context& context_;
  Ranks& ranks_;
  LeavingGradients leaving_;
  StateArray<float> kept_;
  std::array<Slot, 3> slots_;  // the first is for blocks with a row per token
  Tensor<float, 1> sum_;       // of a micro-batch over the ranks, if these keep pieces
  Tensor<float, 1> piece_;     // the sum of earlier micro-batches, from the store
  int next_slot_ = 1;
  Stream* compute_ = nullptr;
  std::int64_t micro_batches_ = 1;
  std::vector<std::int64_t> passes_;  // backward passes that have added to each block
};

}  // namespace llmc
