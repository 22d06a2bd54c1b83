// The parts of the training state that a rank keeps under ZeRO (Rajbhandari et al., 2020): a pure
// function of the parameter table, the stage, the number of ranks in a shard group and a rank's
// place among them. Everything that is sharded loops over it. One rank is the case of one shard.
//
// The trainable parameters of a block, which are neighbours in the table, form a bucket, and so do
// its frozen ones. A bucket is padded so that every rank of the shard group owns a piece of it, a
// multiple of kParameterAlignment elements. An array of whole buckets, and one of a rank's pieces,
// has all trainable buckets first. Gradients, moments and master weights have only these, with the
// offsets of the weights.
//
// All of this is about the part of the model that a tensor rank holds; its layout is the same on
// all tensor ranks. A pipeline rank holds the buckets of its own layers. The cuts of a bucket do
// not depend on that. The embeddings' bucket is on two pipeline ranks with the same cuts, so that
// they can add their gradients of a tied wte piece by piece; on the last one there is a gap in
// place of wpe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/nn/parameter_table.h"

namespace llmc {

// The trainable or the frozen parameters of a block. It is empty if the block has none of them.
struct Bucket {
  std::int64_t table_begin = 0;   // of its first parameter in the table
  std::int64_t size = 0;          // elements of its parameters, with their padding
  std::int64_t split = 0;         // of them, those that no other tensor rank has
  std::int64_t copied = 0;        // after them, those here that all tensor ranks have
  std::int64_t piece = 0;         // elements of one rank's piece
  std::int64_t stored = 0;        // elements of all pieces: size and padding
  std::int64_t whole_offset = 0;  // in an array of whole buckets
  std::int64_t shard_offset = 0;  // of a rank's piece in an array of its pieces
  std::int64_t block_offset = 0;  // in an array of the block's whole buckets
  // Whether this pipeline rank has parameters of it; otherwise it has no offsets.
  bool is_held = false;
};

// Elements of this rank's piece of one or more neighbouring buckets, contiguous in every array that
// has them.
struct OwnedRange {
  std::int64_t first = 0;  // in the array of kept gradients
  std::int64_t shard_offset = 0;
  std::int64_t size = 0;
};

// The part of a parameter that lies in one rank's piece, as it is stored: with padding rows.
struct OwnedPart {
  std::int64_t first = 0;         // index of its first element in the parameter
  std::int64_t size = 0;          // 0: the rank owns nothing of the parameter
  std::int64_t whole_offset = 0;  // in an array of whole buckets
  std::int64_t shard_offset = 0;  // in an array of the rank's pieces
};

class ShardLayout {
 public:
  // `stage` 0 shards nothing, 1 the optimizer state, 2 also the gradients, 3 also the weights.
  ShardLayout(const ParameterTable& table, int stage, int shards, int index)
      : stage_(stage), shards_(stage == 0 ? 1 : shards), index_(stage == 0 ? 0 : index) {
    require(0 <= stage && stage <= 3,
            "the ZeRO stage is " + std::to_string(stage) + ", not 0 to 3");
    require(0 <= index_ && index_ < shards_, "a rank is outside its shard group");
    for (const ParameterSpec& spec : table.specs()) add(spec);
    place(trainable_, 0);
    trainable_whole_size_ = whole_size_;
    trainable_shard_size_ = shard_size_;
    place(frozen_, table.trainable_size());
    for (std::size_t block = 0; block < frozen_.size(); ++block) {
      frozen_[block].block_offset = held_size(trainable_[block]);
    }
  }

  int stage() const { return stage_; }
  int shards() const { return shards_; }
  int index() const { return index_; }
  bool shards_gradients() const { return stage_ >= 2 && shards_ > 1; }
  bool shards_weights() const { return stage_ >= 3 && shards_ > 1; }

  // Those of all pipeline ranks, by block.
  const std::vector<Bucket>& trainable_buckets() const { return trainable_; }
  const std::vector<Bucket>& frozen_buckets() const { return frozen_; }
  const Bucket& bucket(const ParameterSpec& spec) const {
    return (spec.trainable ? trainable_ : frozen_)[static_cast<std::size_t>(spec.block)];
  }
  // The buckets of a block that this pipeline rank has, which are not empty.
  std::vector<const Bucket*> held_buckets(std::size_t block) const {
    std::vector<const Bucket*> buckets;
    for (const Bucket* bucket : {&trainable_[block], &frozen_[block]}) {
      if (bucket->is_held) buckets.push_back(bucket);
    }
    return buckets;
  }

  // Elements of the buckets of a block that this pipeline rank has, and of the trainable one.
  std::int64_t block_size(std::size_t block) const {
    return held_size(trainable_[block]) + held_size(frozen_[block]);
  }
  std::int64_t trainable_block_size(std::size_t block) const {
    return held_size(trainable_[block]);
  }
  // Whether a block has a row per token: the embeddings, and a head that is not tied to them. It is
  // much larger than the others.
  bool has_tokens(std::size_t block) const { return has_tokens_[block]; }
  // The most elements of a block on this pipeline rank, among those that have a row per token or
  // among the others.
  std::int64_t largest_block(bool has_tokens) const {
    return largest(has_tokens, [&](std::size_t block) { return block_size(block); });
  }
  std::int64_t largest_trainable_block(bool has_tokens) const {
    return largest(has_tokens, [&](std::size_t block) { return trainable_block_size(block); });
  }

  // Elements of an array of whole buckets, and of one of a rank's pieces, of this pipeline rank.
  std::int64_t whole_size() const { return whole_size_; }
  std::int64_t shard_size() const { return shard_size_; }
  // Those of the trainable buckets.
  std::int64_t trainable_whole_size() const { return trainable_whole_size_; }
  std::int64_t trainable_shard_size() const { return trainable_shard_size_; }

  // Where a parameter of this pipeline rank begins in an array of whole buckets, and in its bucket.
  std::int64_t whole_offset(const ParameterSpec& spec) const {
    return bucket(spec).whole_offset + bucket_offset(spec);
  }
  std::int64_t bucket_offset(const ParameterSpec& spec) const {
    return spec.offset - bucket(spec).table_begin;
  }
  // Where this rank's piece begins in an array of whole buckets.
  std::int64_t own_piece(const Bucket& bucket) const {
    return bucket.whole_offset + index_ * bucket.piece;
  }

  OwnedPart own_part(const ParameterSpec& spec) const { return part_of(spec, index_); }

  // The same without padding rows.
  OwnedPart own_values(const ParameterSpec& spec) const {
    return values_of(spec, spec.part, index_);
  }
  // Those of the rank with this index in the shard group of another tensor rank, which holds
  // `local` of the parameter.
  OwnedPart values_of(const ParameterSpec& spec, const LocalParameter& local, int index) const {
    OwnedPart part = part_of(spec, index);
    part.size = std::clamp<std::int64_t>(local.size() - part.first, 0, part.size);
    return part;
  }

  // The part that the rank with this index in the shard group owns.
  OwnedPart part_of(const ParameterSpec& spec, int index) const {
    const Bucket& bucket = this->bucket(spec);
    const std::int64_t begin = bucket_offset(spec), piece_begin = index * bucket.piece;
    const std::int64_t first = std::clamp<std::int64_t>(piece_begin - begin, 0, spec.stored_size());
    const std::int64_t end =
        std::clamp<std::int64_t>(piece_begin + bucket.piece - begin, 0, spec.stored_size());
    if (end <= first) return {};
    return {.first = first,
            .size = end - first,
            .whole_offset = bucket.whole_offset + begin + first,
            .shard_offset = bucket.shard_offset + begin + first - piece_begin};
  }

 private:
  void add(const ParameterSpec& spec) {
    const auto block = static_cast<std::size_t>(spec.block);
    require(block + 1 == trainable_.size() || block == trainable_.size(),
            "the parameters of a block are not neighbours in the table");
    trainable_.resize(block + 1);
    frozen_.resize(block + 1);
    has_tokens_.resize(block + 1);
    const bool is_head = spec.axes.rows.front().name == AxisName::vocabulary || is_score(spec);
    if (is_head) has_tokens_[block] = true;
    if (spec.is_code) return;
    Bucket& bucket = (spec.trainable ? trainable_ : frozen_).back();
    const std::int64_t size = round_up(spec.stored_size(), kParameterAlignment);
    bucket.size += size;
    if (spec.part.split) bucket.split += size;
    if (spec.is_held && !spec.part.split) bucket.copied += size;
    bucket.is_held = bucket.is_held || spec.is_held;
  }

  // Places the buckets, of which the first begins at `table_begin`, one after the other.
  void place(std::vector<Bucket>& buckets, std::int64_t table_begin) {
    for (Bucket& bucket : buckets) {
      bucket.table_begin = table_begin;
      table_begin += bucket.size;
      bucket.piece = round_up(ceil_div(bucket.size, shards_), kParameterAlignment);
      bucket.stored = bucket.piece * shards_;
      if (!bucket.is_held) continue;
      bucket.whole_offset = whole_size_;
      bucket.shard_offset = shard_size_;
      whole_size_ += bucket.stored;
      shard_size_ += bucket.piece;
    }
  }
  template <class SizeOf>
  std::int64_t largest(bool has_tokens, const SizeOf& size_of) const {
    std::int64_t largest = 0;
    for (std::size_t block = 0; block < trainable_.size(); ++block) {
      if (has_tokens_[block] == has_tokens) largest = std::max(largest, size_of(block));
    }
    return largest;
  }
  static std::int64_t held_size(const Bucket& bucket) { return bucket.is_held ? bucket.stored : 0; }

  int stage_, shards_, index_;
  std::vector<Bucket> trainable_, frozen_;  // both have one bucket per block
  std::vector<bool> has_tokens_;            // by block
  std::int64_t whole_size_ = 0, shard_size_ = 0;
  std::int64_t trainable_whole_size_ = 0, trainable_shard_size_ = 0;
};

}  // namespace llmc
