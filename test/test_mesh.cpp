// The mesh: places and groups of ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "llmc/comm/mesh.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

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

struct Place {
  int pipeline, replica, shard, tensor;
};

// The places of all ranks, by loops over the coordinates, slowest first.
std::vector<Place> looped_places(const Mesh& mesh) {
  std::vector<Place> places;
  const int replicas = mesh.ranks / (mesh.pipeline_ranks * mesh.shard_ranks * mesh.tensor_ranks);
  for (int pipeline = 0; pipeline < mesh.pipeline_ranks; ++pipeline) {
    for (int replica = 0; replica < replicas; ++replica) {
      for (int shard = 0; shard < mesh.shard_ranks; ++shard) {
        for (int tensor = 0; tensor < mesh.tensor_ranks; ++tensor)
          places.push_back({pipeline, replica, shard, tensor});
      }
    }
  }
  return places;
}

// Compares the groups of every `step`-th rank with the ranks whose coordinates are equal.
void check_against_loops(const Mesh& mesh, int step) {
  const std::vector<Place> places = looped_places(mesh);
  REQUIRE(static_cast<int>(places.size()) == mesh.ranks);
  for (int rank = 0; rank < mesh.ranks; rank += step) {
    const Place own = places[static_cast<std::size_t>(rank)];
    std::vector<int> tensor, shard, replica, data, pipeline;
    for (int other = 0; other < mesh.ranks; ++other) {
      const Place at = places[static_cast<std::size_t>(other)];
      const bool p = at.pipeline == own.pipeline, r = at.replica == own.replica;
      const bool s = at.shard == own.shard, t = at.tensor == own.tensor;
      if (p && r && s) tensor.push_back(other);
      if (p && r && t) shard.push_back(other);
      if (p && s && t) replica.push_back(other);
      if (p && t) data.push_back(other);
      if (r && s && t) pipeline.push_back(other);
    }
    const bool equal = mesh.tensor_group(rank) == tensor && mesh.shard_group(rank) == shard &&
                       mesh.replica_group(rank) == replica && mesh.data_group(rank) == data &&
                       mesh.pipeline_group(rank) == pipeline;
    if (!equal) FAIL("rank " << rank << " of " << mesh.ranks);
  }
}

}  // namespace

TEST_SUITE("mesh") {
  TEST_CASE("sizes of groups that do not divide the ranks are refused") {
    CHECK(contains(complaint([&] { make_mesh(6, 4); }),
                   "6 ranks cannot be divided into shard groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(2, 0); }), "shard groups of 0"));
    CHECK(contains(complaint([&] { make_mesh(6, 1, 4); }),
                   "6 ranks cannot be divided into tensor groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(8, 4, 4); }),
                   "2 data-parallel ranks cannot be divided into shard groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(6, 1, 1, 4); }),
                   "6 ranks cannot be divided into pipelines of 4"));
    CHECK(contains(complaint([&] { make_mesh(8, 1, 4, 4); }),
                   "8 ranks cannot be divided into pipelines of 4 with tensor groups of 4"));
    CHECK(contains(complaint([&] { make_mesh(8, 1, 1, 0); }), "into pipelines of 0"));
    CHECK(contains(complaint([&] { make_mesh(8, 4, 1, 4); }),
                   "2 data-parallel ranks cannot be divided into shard groups of 4"));
  }

  TEST_CASE("every rank is in one group of each kind, and its place names it") {
    for (const Mesh& mesh :
         {make_mesh(1, 1), make_mesh(6, 3, 2), make_mesh(6, 1, 2), make_mesh(8, 2, 2),
          make_mesh(8, 1, 8), make_mesh(12, 3, 2), make_mesh(8, 2, 2, 2), make_mesh(24, 3, 2, 4),
          make_mesh(6, 1, 1, 6)}) {
      CAPTURE(mesh_text(mesh));
      CHECK(mesh.pipeline_ranks * mesh.replicas() * mesh.shard_ranks * mesh.tensor_ranks ==
            mesh.ranks);
      check_groups(mesh, mesh.tensor_ranks, [&](int rank) { return mesh.tensor_group(rank); });
      check_groups(mesh, mesh.shard_ranks, [&](int rank) { return mesh.shard_group(rank); });
      check_groups(mesh, mesh.replicas(), [&](int rank) { return mesh.replica_group(rank); });
      check_groups(mesh, mesh.data_ranks(), [&](int rank) { return mesh.data_group(rank); });
      check_groups(mesh, mesh.pipeline_ranks, [&](int rank) { return mesh.pipeline_group(rank); });
      for (int rank = 0; rank < mesh.ranks; ++rank) {
        const int tensor_rank = mesh.tensor_rank(rank);
        CHECK(mesh.rank_at(mesh.pipeline_rank(rank), mesh.replica(rank), mesh.shard_rank(rank),
                           tensor_rank) == rank);
        const int in_part = mesh.data_rank(rank) * mesh.tensor_ranks + tensor_rank;
        CHECK(mesh.pipeline_rank(rank) * mesh.ranks / mesh.pipeline_ranks + in_part == rank);
        for (const int other : mesh.tensor_group(rank)) {
          CHECK(mesh.data_rank(other) == mesh.data_rank(rank));
          CHECK(mesh.pipeline_rank(other) == mesh.pipeline_rank(rank));
        }
        for (const int other : mesh.shard_group(rank)) {
          CHECK(mesh.tensor_rank(other) == tensor_rank);
          CHECK(mesh.replica(other) == mesh.replica(rank));
        }
      }
    }
  }

  TEST_CASE("groups are those of loops over the coordinates, on up to 1,344 machines with 8 GPUs") {
    for (int ranks = 1; ranks <= 24; ++ranks) {
      for (int tensor = 1; tensor <= ranks; ++tensor) {
        for (int pipeline = 1; pipeline <= ranks; ++pipeline) {
          if (ranks % (tensor * pipeline) != 0) continue;
          const int data = ranks / (tensor * pipeline);
          for (int shard = 1; shard <= data; ++shard) {
            if (data % shard == 0)
              check_against_loops(make_mesh(ranks, shard, tensor, pipeline), 1);
          }
        }
      }
    }
    check_against_loops(make_mesh(64 * 8, 8, 8, 4), 1);
    check_against_loops(make_mesh(1344 * 8, 8, 8, 12), 97);
    check_against_loops(make_mesh(1344 * 8, 14, 4, 16), 97);
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

  TEST_CASE("the mesh of 8 ranks in tensor groups of 2 and pipelines of 2") {
    CHECK(mesh_text(make_mesh(8, 2, 2, 2)) ==
          "rank 0: pipeline rank 0 of 2, replica 0 of 1, shard 0 of 2, tensor rank 0 of 2; shard "
          "group 0 2; "
          "replica group 0; tensor group 0 1; pipeline group 0 4\n"
          "rank 1: pipeline rank 0 of 2, replica 0 of 1, shard 0 of 2, tensor rank 1 of 2; shard "
          "group 1 3; "
          "replica group 1; tensor group 0 1; pipeline group 1 5\n"
          "rank 2: pipeline rank 0 of 2, replica 0 of 1, shard 1 of 2, tensor rank 0 of 2; shard "
          "group 0 2; "
          "replica group 2; tensor group 2 3; pipeline group 2 6\n"
          "rank 3: pipeline rank 0 of 2, replica 0 of 1, shard 1 of 2, tensor rank 1 of 2; shard "
          "group 1 3; "
          "replica group 3; tensor group 2 3; pipeline group 3 7\n"
          "rank 4: pipeline rank 1 of 2, replica 0 of 1, shard 0 of 2, tensor rank 0 of 2; shard "
          "group 4 6; "
          "replica group 4; tensor group 4 5; pipeline group 0 4\n"
          "rank 5: pipeline rank 1 of 2, replica 0 of 1, shard 0 of 2, tensor rank 1 of 2; shard "
          "group 5 7; "
          "replica group 5; tensor group 4 5; pipeline group 1 5\n"
          "rank 6: pipeline rank 1 of 2, replica 0 of 1, shard 1 of 2, tensor rank 0 of 2; shard "
          "group 4 6; "
          "replica group 6; tensor group 6 7; pipeline group 2 6\n"
          "rank 7: pipeline rank 1 of 2, replica 0 of 1, shard 1 of 2, tensor rank 1 of 2; shard "
          "group 5 7; "
          "replica group 7; tensor group 6 7; pipeline group 3 7\n");
  }

  TEST_CASE("the mesh of 16 ranks in tensor groups of 2, shard groups of 2 and pipelines of 2") {
    const Mesh mesh = make_mesh(16, 2, 2, 2);
    CHECK(mesh.tensor_group(13) == std::vector<int>{12, 13});
    CHECK(mesh.shard_group(13) == std::vector<int>{13, 15});
    CHECK(mesh.replica_group(13) == std::vector<int>{9, 13});
    CHECK(mesh.data_group(13) == std::vector<int>{9, 11, 13, 15});
    CHECK(mesh.pipeline_group(13) == std::vector<int>{5, 13});
    CHECK(contains(
        mesh_text(mesh),
        "rank 13: pipeline rank 1 of 2, replica 1 of 2, shard 0 of 2, tensor rank 1 of 2; shard "
        "group 13 15; replica group 9 13; tensor group 12 13; pipeline group 5 13\n"));
  }
}
