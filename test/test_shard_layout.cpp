// The shard layout: every element has one owner, and pieces are whole blocks of 1024 elements.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"
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

// Checks that every rank is in one group of a kind, whose size is `size`, with `rank` among its
// members; the members of a group have it in common.
template <class GroupOf>
void check_groups(const Mesh& mesh, int size, const GroupOf& group_of) {
  std::set<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.ranks; ++rank) {
    const std::vector<int> group = group_of(rank);
    CHECK(static_cast<int>(group.size()) == size);
    CHECK(std::ranges::is_sorted(group));
    CHECK(std::ranges::count(group, rank) == 1);
    for (const int member : group) CHECK(group_of(member) == group);
    groups.insert(group);
  }
  CHECK(static_cast<int>(groups.size()) * size == mesh.ranks);
}

}  // namespace

TEST_SUITE("shard layout") {
  TEST_CASE("the parts of all ranks are each parameter, once") {
    const std::vector<Gpt2Config> configs = {
        {.vocabulary = 211, .context = 16, .layers = 3, .heads = 3, .channels = 24},
        {.vocabulary = 50257, .context = 1024, .layers = 2, .heads = 12, .channels = 768},
        {.vocabulary = 7, .context = 4, .layers = 1, .heads = 1, .channels = 8}};
    for (const Gpt2Config& config : configs) {
      const ParameterTable table(config);
      for (const int shards : {1, 2, 3, 5, 8, 64}) {
        CAPTURE(shards);
        check_parts(table, 1, shards);
        const ShardLayout layout(table, 1, shards, 0);
        CHECK(layout.shard_size() * shards == layout.whole_size());
        CHECK(layout.shard_size() % kParameterAlignment == 0);
        CHECK(layout.buckets().size() == static_cast<std::size_t>(config.layers) + 2);
        // Padding: less than a piece of 1024 elements per bucket and rank.
        const auto padding = layout.whole_size() - table.stored_size();
        CHECK(padding >= 0);
        CHECK(padding <
              static_cast<std::int64_t>(layout.buckets().size()) * shards * kParameterAlignment);
      }
    }
  }

  TEST_CASE("one shard, and stage 0 of any number, is the table itself") {
    const ParameterTable table(
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

  TEST_CASE("wrong stages, places and shard groups are refused") {
    const ParameterTable table(
        {.vocabulary = 7, .context = 4, .layers = 1, .heads = 1, .channels = 8});
    CHECK(contains(complaint([&] { ShardLayout(table, 4, 2, 0); }),
                   "the ZeRO stage is 4, not 0 to 3"));
    CHECK(contains(complaint([&] { ShardLayout(table, 1, 2, 2); }), "outside its shard group"));
    CHECK(contains(complaint([&] { make_mesh(6, 4); }),
                   "6 ranks cannot be divided into shard groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(2, 0); }), "shard groups of 0"));
    CHECK(contains(complaint([&] { make_mesh(6, 1, 4); }),
                   "6 ranks cannot be divided into tensor groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(8, 4, 4); }),
                   "2 data-parallel ranks cannot be divided into shard groups of 4"));
  }

  TEST_CASE("every rank is in one group of each kind, and its place names it") {
    for (const Mesh& mesh : {make_mesh(1, 1), make_mesh(6, 3, 2), make_mesh(6, 1, 2),
                             make_mesh(8, 2, 2), make_mesh(8, 1, 8), make_mesh(12, 3, 2)}) {
      CAPTURE(mesh_text(mesh));
      CHECK(mesh.replicas() * mesh.shard_ranks * mesh.tensor_ranks == mesh.ranks);
      check_groups(mesh, mesh.tensor_ranks, [&](int rank) { return mesh.tensor_group(rank); });
      check_groups(mesh, mesh.shard_ranks, [&](int rank) { return mesh.shard_group(rank); });
      check_groups(mesh, mesh.replicas(), [&](int rank) { return mesh.replica_group(rank); });
      check_groups(mesh, mesh.data_ranks(), [&](int rank) { return mesh.data_group(rank); });
      for (int rank = 0; rank < mesh.ranks; ++rank) {
        const int tensor_rank = mesh.tensor_rank(rank);
        CHECK(mesh.rank_at(mesh.replica(rank), mesh.shard_rank(rank), tensor_rank) == rank);
        CHECK(mesh.data_rank(rank) * mesh.tensor_ranks + tensor_rank == rank);
        for (const int other : mesh.tensor_group(rank)) {
          CHECK(mesh.data_rank(other) == mesh.data_rank(rank));
        }
        for (const int other : mesh.shard_group(rank)) {
          CHECK(mesh.tensor_rank(other) == tensor_rank);
          CHECK(mesh.replica(other) == mesh.replica(rank));
        }
      }
    }
  }

  TEST_CASE("the mesh of 6 ranks in tensor groups of 2") {
    CHECK(mesh_text(make_mesh(6, 3, 2)) ==
          "rank 0: replica 0 of 1, shard 0 of 3, tensor rank 0 of 2; shard group 0 2 4; replica "
          "group 0; tensor group 0 1\n"
          "rank 1: replica 0 of 1, shard 0 of 3, tensor rank 1 of 2; shard group 1 3 5; replica "
          "group 1; tensor group 0 1\n"
          "rank 2: replica 0 of 1, shard 1 of 3, tensor rank 0 of 2; shard group 0 2 4; replica "
          "group 2; tensor group 2 3\n"
          "rank 3: replica 0 of 1, shard 1 of 3, tensor rank 1 of 2; shard group 1 3 5; replica "
          "group 3; tensor group 2 3\n"
          "rank 4: replica 0 of 1, shard 2 of 3, tensor rank 0 of 2; shard group 0 2 4; replica "
          "group 4; tensor group 4 5\n"
          "rank 5: replica 0 of 1, shard 2 of 3, tensor rank 1 of 2; shard group 1 3 5; replica "
          "group 5; tensor group 4 5\n");
  }

  TEST_CASE("the mesh of 8 ranks in tensor groups of 2 and shard groups of 2") {
    const Mesh mesh = make_mesh(8, 2, 2);
    CHECK(mesh.shard_group(3) == std::vector<int>{1, 3});
    CHECK(mesh.replica_group(3) == std::vector<int>{3, 7});
    CHECK(mesh.tensor_group(3) == std::vector<int>{2, 3});
    CHECK(mesh.data_group(3) == std::vector<int>{1, 3, 5, 7});
    CHECK(contains(mesh_text(mesh),
                   "rank 6: replica 1 of 2, shard 1 of 2, tensor rank 0 of 2; shard group 4 6; "
                   "replica group 2 6; tensor group 6 7\n"));
  }

  TEST_CASE("the mesh of 6 ranks in shard groups of 3") {
    CHECK(mesh_text(make_mesh(6, 3)) ==
          "rank 0: replica 0 of 2, shard 0 of 3; shard group 0 1 2; replica group 0 3\n"
          "rank 1: replica 0 of 2, shard 1 of 3; shard group 0 1 2; replica group 1 4\n"
          "rank 2: replica 0 of 2, shard 2 of 3; shard group 0 1 2; replica group 2 5\n"
          "rank 3: replica 1 of 2, shard 0 of 3; shard group 3 4 5; replica group 0 3\n"
          "rank 4: replica 1 of 2, shard 1 of 3; shard group 3 4 5; replica group 1 4\n"
          "rank 5: replica 1 of 2, shard 2 of 3; shard group 3 4 5; replica group 2 5\n");
  }
}
