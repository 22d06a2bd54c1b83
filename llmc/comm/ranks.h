// A rank's place in the mesh, its communicators, and its communication stream.
#pragma once

#include <memory>
#include <utility>

#include "llmc/comm/mesh.h"
#include "llmc/comm/world.h"

namespace llmc {

class Ranks {
 public:
  // One rank; it has neither communicators nor a communication stream.
  Ranks() = default;

  // All ranks of the world call this with equal meshes. The world must outlive the object.
  Ranks(World& world, const Mesh& mesh) : mesh_(mesh), rank_(world.rank()) {
    require(mesh.ranks == world.ranks(), "the mesh has another number of ranks than the run");
    if (single()) return;
    all_ = world.all();
    shard_ = world.group("shard", mesh.shard_group(rank_));
    replica_ = world.group("replica", mesh.replica_group(rank_));
    stream_ = std::make_unique<Stream>();
    computed_ = std::make_unique<Event>();
    communicated_ = std::make_unique<Event>();
  }

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  bool single() const { return mesh_.ranks == 1; }

  // These exist if there are several ranks. The communicators are used only on stream().
  Communicator& all() { return *all_; }
  Communicator& shard() { return *shard_; }      // the ranks of this rank's shard group
  Communicator& replica() { return *replica_; }  // the ranks with the same shard
  Stream& stream() { return *stream_; }

  // Later communication comes after the present work of `compute`.
  void follow(Stream& compute) {
    computed_->record(compute);
    stream_->wait(*computed_);
  }
  // Later work of `compute` comes after the present communication.
  void lead(Stream& compute) {
    communicated_->record(*stream_);
    compute.wait(*communicated_);
  }

 private:
  Mesh mesh_;
  int rank_ = 0;
  std::unique_ptr<Communicator> all_, shard_, replica_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> computed_, communicated_;
};

}  // namespace llmc
