// A rank's place in the mesh, its communicators, and its communication stream.
#pragma once

#include <memory>
#include <utility>

#include "llmc/comm/mesh.h"
#include "llmc/comm/world.h"
#include "llmc/device/phase_clock.h"

namespace llmc {

class Ranks {
 public:
  // One rank; it has neither communicators nor a communication stream.
  Ranks() = default;

  // The place of one rank of a run that is only planned: it communicates with no other.
  Ranks(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank) {}

  // All ranks of the world call this with equal meshes. The world must outlive the object.
  Ranks(World& world, const Mesh& mesh) : mesh_(mesh), rank_(world.rank()) {
    require(mesh.ranks == world.ranks(), "the mesh has another number of ranks than the run");
    if (single()) return;
    all_ = world.all();
    shard_ = world.group("shard", mesh.shard_group(rank_));
    replica_ = world.group("replica", mesh.replica_group(rank_));
    if (mesh.tensor_ranks > 1) {
      tensor_ = world.group("tensor", mesh.tensor_group(rank_));
      data_ = world.group("data", mesh.data_group(rank_));
    }
    stream_ = std::make_unique<Stream>();
    computed_ = std::make_unique<Event>();
    communicated_ = std::make_unique<Event>();
  }

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  bool single() const { return mesh_.ranks == 1; }
  int tensor_rank() const { return mesh_.tensor_rank(rank_); }
  int data_rank() const { return mesh_.data_rank(rank_); }
  // Whether this rank stands for its tensor group, whose ranks all have the same samples and
  // losses.
  bool first_of_tensor_group() const { return tensor_rank() == 0; }

  // These exist if there are several ranks that are not only planned. The communicators are used
  // only on stream().
  Communicator& all() { return *all_; }
  Communicator& shard() { return *shard_; }      // the ranks of this rank's shard group
  Communicator& replica() { return *replica_; }  // the ranks with the same shard
  // The ranks with the same part of the model.
  Communicator& data() { return data_ ? *data_ : *all_; }
  Stream& stream() { return *stream_; }
  // The ranks of the tensor group, if there are several. Used only on the compute stream, which
  // needs every result at once: see tensor().
  Communicator& tensor_group() { return *tensor_; }

  // Bytes that this rank has sent in all groups, and those in its tensor group.
  std::int64_t bytes() const {
    if (!all_) return 0;
    return all_->bytes() + shard_->bytes() + replica_->bytes() + (data_ ? data_->bytes() : 0) +
           tensor_bytes();
  }
  std::int64_t tensor_bytes() const { return tensor_ ? tensor_->bytes() : 0; }

  // Waits until the present work of `compute` is complete, which may wait for other ranks. Throws
  // if the backend detects that one of them has failed.
  void synchronize(Stream& compute) { all_ ? all_->wait(compute) : compute.synchronize(); }

  // Later waits for communication are timed as a phase of their own; null: they are not timed.
  void time(PhaseClock* clock) { clock_ = clock; }

  // Calls work(), which uses the communicators on stream(), after the present work of `compute`.
  template <class Work>
  void communicate(Stream& compute, const Work& work) {
    timed(compute, Phase::data_communication, [&] {
      computed_->record(compute);
      stream_->wait(*computed_);
      work();
    });
  }
  // Calls work(communicator), which uses the communicator of the tensor group on `compute`.
  template <class Work>
  void tensor(Stream& compute, const Work& work) {
    timed(compute, Phase::tensor_communication, [&] { work(*tensor_); });
  }
  // Later work of `compute` comes after the present communication.
  void lead(Stream& compute) {
    communicated_->record(*stream_);
    wait(compute, *communicated_);
  }
  // The same for the communication up to an event of stream().
  void wait(Stream& compute, const Event& communicated) {
    timed(compute, Phase::data_communication, [&] { compute.wait(communicated); });
  }

 private:
  // A collective may make the calling thread wait, and so the compute stream.
  template <class Work>
  void timed(Stream& compute, Phase phase, const Work& work) {
    if (clock_ == nullptr) return work();
    const Phase before = clock_->mark(phase, compute);
    work();
    clock_->mark(before, compute);
  }

  Mesh mesh_;
  int rank_ = 0;
  std::unique_ptr<Communicator> all_, shard_, replica_;
  std::unique_ptr<Communicator> tensor_, data_;  // null if tensor groups have one rank
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> computed_, communicated_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace llmc
