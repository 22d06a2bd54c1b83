// The shard layout: every element has one owner, and pieces are whole blocks of 1024 elements.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/parallel/shard_layout.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Checks the parts of all ranks of a shard group, for one parameter: they follow each other.
void check_parts(const ParameterTable& table, int stage, int shards) {
  for (const ParameterSpec& spec : table.specs()) {
    std::int64_t next = 0;
    for (int index = 0; index < shards; ++index) {
      const ShardLayout layout(table, stage, shards, index);
      const OwnedPart part = layout.own_part(spec);
      if (part.size == 0) continue;
      const Bucket& bucket = layout.bucket(spec);
      CHECK(part.first == next);
      CHECK(part.first % kParameterAlignment == 0);
      CHECK(part.whole_offset == layout.whole_offset(spec) + part.first);
      CHECK(part.shard_offset - bucket.shard_offset ==
            part.whole_offset - layout.own_piece(bucket));
      CHECK(part.shard_offset + part.size <= bucket.shard_offset + bucket.piece);
      next += part.size;
    }
    CHECK(next == spec.stored_size());
  }
}

}  // namespace

TEST_SUITE("shard layout") {
  TEST_CASE("the parts of all ranks are each parameter, once") {
    const std::vector<ModelConfig> configs = {
        {.vocabulary = 211, .context = 16, .layers = 3, .heads = 3, .channels = 24},
        {.vocabulary = 50257, .context = 1024, .layers = 2, .heads = 12, .channels = 768},
        {.vocabulary = 7, .context = 4, .layers = 1, .heads = 1, .channels = 8}};
    for (const ModelConfig& config : configs) {
      const ParameterTable table = gpt2_parameters(config);
      for (const int shards : {1, 2, 3, 5, 8, 64}) {
        CAPTURE(shards);
        check_parts(table, 1, shards);
        const ShardLayout layout(table, 1, shards, 0);
        CHECK(layout.shard_size() * shards == layout.whole_size());
        CHECK(layout.shard_size() % kParameterAlignment == 0);
        CHECK(layout.trainable_buckets().size() == static_cast<std::size_t>(config.layers) + 2);
        // Padding: less than a piece of 1024 elements per bucket and rank.
        const auto padding = layout.whole_size() - table.stored_size();
        CHECK(padding >= 0);
        CHECK(padding < static_cast<std::int64_t>(layout.trainable_buckets().size()) * shards *
                            kParameterAlignment);
      }
    }
  }

  TEST_CASE("one shard, and stage 0 of any number, is the table itself") {
    const ParameterTable table = gpt2_parameters(
        {.vocabulary = 211, .context = 16, .layers = 2, .heads = 2, .channels = 16});
    for (const ShardLayout& layout : {ShardLayout(table, 3, 1, 0), ShardLayout(table, 0, 8, 5)}) {
      CHECK(layout.whole_size() == table.stored_size());
      CHECK(layout.shard_size() == table.stored_size());
      CHECK_FALSE(layout.shards_gradients());
      CHECK_FALSE(layout.shards_weights());
      for (const ParameterSpec& spec : table.specs()) {
        const OwnedPart part = layout.own_part(spec);
        CHECK(part.first == 0);
        CHECK(part.size == spec.stored_size());
        CHECK(part.whole_offset == spec.offset);
        CHECK(part.shard_offset == spec.offset);
      }
    }
  }

  TEST_CASE("trainable parameters have the first offsets of every array") {
    const ModelConfig config{
        .vocabulary = 211, .context = 16, .layers = 2, .heads = 2, .channels = 16};
    const std::vector<std::string> frozen = {"wte.weight", "h.0.ln_1.bias", "h.1.mlp.c_fc.weight",
                                             "ln_f.weight", "ln_f.bias"};
    const ParameterTable table = gpt2_parameters(config, {}, {.frozen = frozen});
    for (const int shards : {1, 2, 3, 8}) {
      CAPTURE(shards);
      check_parts(table, 3, shards);
      const ShardLayout layout(table, 3, shards, shards - 1);
      CHECK(layout.trainable_shard_size() * shards == layout.trainable_whole_size());
      CHECK(layout.trainable_shard_size() < layout.shard_size());
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        const OwnedPart part = layout.own_part(spec);
        if (part.size == 0) continue;
        const bool is_first = part.shard_offset + part.size <= layout.trainable_shard_size();
        CHECK(is_first == spec.trainable);
        CHECK((part.shard_offset >= layout.trainable_shard_size()) != spec.trainable);
        CHECK((layout.whole_offset(spec) >= layout.trainable_whole_size()) != spec.trainable);
      }
      // The final norm has no trainable bucket, and the first layer has a small frozen one.
      CHECK_FALSE(layout.trainable_buckets().back().is_held);
      CHECK(layout.trainable_block_size(3) == 0);
      CHECK(layout.block_size(3) > 0);
      CHECK(layout.held_buckets(3).size() == 1);
      CHECK(layout.held_buckets(1).size() == 2);
      CHECK(layout.frozen_buckets()[1].size == kParameterAlignment);
    }
  }

  TEST_CASE("with nothing frozen, frozen buckets are empty") {
    const ParameterTable table = gpt2_parameters(
        {.vocabulary = 211, .context = 16, .layers = 2, .heads = 2, .channels = 16});
    const ShardLayout layout(table, 3, 2, 1);
    for (const Bucket& bucket : layout.frozen_buckets()) {
      CHECK_FALSE(bucket.is_held);
      CHECK(bucket.stored == 0);
    }
    CHECK(layout.trainable_whole_size() == layout.whole_size());
    CHECK(layout.trainable_shard_size() == layout.shard_size());
    for (const bool has_tokens : {true, false})
      CHECK(layout.largest_trainable_block(has_tokens) == layout.largest_block(has_tokens));
  }

  TEST_CASE("wrong stages and places are refused") {
    const ParameterTable table =
        gpt2_parameters({.vocabulary = 7, .context = 4, .layers = 1, .heads = 1, .channels = 8});
    CHECK(contains(complaint([&] { ShardLayout(table, 4, 2, 0); }),
                   "the ZeRO stage is 4, not 0 to 3"));
    CHECK(contains(complaint([&] { ShardLayout(table, 1, 2, 2); }), "outside its shard group"));
  }
}
