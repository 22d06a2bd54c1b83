// A rank's place in the mesh, its communicators, and its communication stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "llmc/comm/channel.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/world.h"
#include "llmc/device/phase_clock.h"

namespace llmc {

// The messages between a pipeline rank and its neighbours: activations go to the rank of the next
// stage, their gradients to that of the stage before. Pipeline ranks form a ring.
struct PipelineChannels {
  Channel *activations_in = nullptr, *activations_out = nullptr;
  Channel *gradients_in = nullptr, *gradients_out = nullptr;
  // In the order in which all ranks make them, and in which they end: the end of a channel may wait
  // for its other end.
  std::vector<std::unique_ptr<Channel>> all = {};

  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const auto& channel : all) sum += channel->bytes();
    return sum;
  }
};

class Ranks {
 public:
  // One rank; it has neither communicators nor a communication stream.
  Ranks() = default;

  // The place of one rank of a run that is only planned: it communicates with no other.
  Ranks(const Mesh& mesh, int rank) : mesh_(mesh), rank_(rank) {}

  // All ranks of the world call this with equal meshes. The world must outlive the object.
  // `message_streams` of the channels between pipeline ranks.
  Ranks(World& world, const Mesh& mesh,
        Channel::StreamChoice message_streams = Channel::StreamChoice::by_backend)
      : mesh_(mesh), rank_(world.rank()) {
    require(mesh.ranks == world.ranks(), "the mesh has another number of ranks than the run");
    if (single()) return;
    all_ = world.all();
    shard_ = world.group("shard", mesh.shard_group(rank_));
    replica_ = world.group("replica", mesh.replica_group(rank_));
    if (mesh.tensor_ranks > 1) tensor_ = world.group("tensor", mesh.tensor_group(rank_));
    if (mesh.data_ranks() < mesh.ranks) data_ = world.group("data", mesh.data_group(rank_));
    if (mesh.pipeline_ranks > 1) connect_pipeline(world, message_streams);
    stream_ = std::make_unique<Stream>();
    computed_ = std::make_unique<Event>();
    communicated_ = std::make_unique<Event>();
  }

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }
  bool single() const { return mesh_.ranks == 1; }
  int tensor_rank() const { return mesh_.tensor_rank(rank_); }
  int data_rank() const { return mesh_.data_rank(rank_); }
  int pipeline_rank() const { return mesh_.pipeline_rank(rank_); }
  // Whether this rank stands for those with its data rank, which all have the same samples.
  bool first_of_data_rank() const { return tensor_rank() == 0 && pipeline_rank() == 0; }
  // Whether this rank stands for its tensor group.
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

  // The ranks of the pipeline, if there are several. Used only on stream().
  Communicator& pipeline() { return *pipeline_; }
  // The ranks of its first and of its last stage, which both have the token embeddings; null on
  // other ranks. Used only on stream().
  Communicator* embeddings() { return embeddings_.get(); }
  // Used only on the compute stream, between exchange_messages() or wait_for_message().
  PipelineChannels& channels() { return channels_; }

  // Bytes that this rank has sent in all groups, those in its tensor group, and those to ranks of
  // its pipeline.
  std::int64_t bytes() const {
    if (!all_) return 0;
    return all_->bytes() + shard_->bytes() + replica_->bytes() + bytes_of(data_) + tensor_bytes() +
           pipeline_bytes();
  }
  std::int64_t tensor_bytes() const { return bytes_of(tensor_); }
  std::int64_t pipeline_bytes() const {
    return bytes_of(pipeline_) + bytes_of(embeddings_) + channels_.bytes();
  }

  // Waits until the present work of `compute` is complete, which may wait for other ranks. Throws
  // if the backend detects that one of them has failed.
  void synchronize(Stream& compute) { all_ ? all_->wait(compute) : compute.synchronize(); }

  // Later waits for communication are timed as a phase of their own; null: they are not timed.
  void time(PhaseClock* clock) { clock_ = clock; }

  // Calls work(), which uses the communicators on stream(), after the present work of `compute`.
  template <class Work>
  void communicate(Stream& compute, const Work& work, Phase phase = Phase::data_communication) {
    timed(compute, phase, [&] {
      computed_->record(compute);
      stream_->wait(*computed_);
      work();
    });
  }
  // Calls work(), which sends to pipeline ranks on `compute`.
  template <class Work>
  void exchange_messages(Stream& compute, const Work& work) {
    timed(compute, Phase::pipeline_communication, work);
  }
  // Calls work(), which receives from pipeline ranks on `compute`. They may not have computed it.
  template <class Work>
  void wait_for_message(Stream& compute, const Work& work) {
    timed(compute, Phase::bubble, work);
  }
  // Sends to the rank of the next stage. `values` may change after the next receive.
  template <class T>
  void send_activations(Tensor<T, 1> values, Stream& compute) {
    exchange_messages(compute, [&] {
      const auto message = channels_.activations_out->send(values, compute);
      channels_.activations_out->sent(message, compute);
    });
  }
  // Receives from the rank of the stage before.
  template <class T>
  void receive_activations(Tensor<T, 1> values, Stream& compute) {
    wait_for_message(compute, [&] {
      channels_.activations_in->expect(values, compute);
      channels_.activations_in->arrive(compute);
    });
  }
  // The values of the last pipeline rank replace those of the others.
  template <class T>
  void share_from_last(Tensor<T, 1> values, Stream& compute) {
    pipeline_collective(compute, [&](Communicator& group) {
      group.broadcast(values, mesh_.pipeline_ranks - 1, *stream_);
    });
  }
  // The values become their sums over the pipeline ranks.
  template <class T>
  void all_reduce_over_pipeline(Tensor<T, 1> values, Stream& compute) {
    pipeline_collective(compute, [&](Communicator& group) { group.all_reduce(values, *stream_); });
  }
  // Calls work(communicator), which uses the communicator of the tensor group on `compute`.
  template <class Work>
  void tensor(Stream& compute, const Work& work) {
    timed(compute, Phase::tensor_communication, [&] { work(*tensor_); });
  }
  // Later work of `compute` comes after the present communication.
  void wait_for_communication(Stream& compute, Phase phase = Phase::data_communication) {
    communicated_->record(*stream_);
    wait(compute, *communicated_, phase);
  }
  // The same for the communication up to an event of stream().
  void wait(Stream& compute, const Event& communicated, Phase phase = Phase::data_communication) {
    timed(compute, phase, [&] { compute.wait(communicated); });
  }

 private:
  static std::int64_t bytes_of(const std::unique_ptr<Communicator>& group) {
    return group ? group->bytes() : 0;
  }

  // Neighbours make the two channels between them in the order of the ranks that send activations.
  void connect_pipeline(World& world, Channel::StreamChoice message_streams) {
    const std::vector<int> ring = mesh_.pipeline_group(rank_);
    pipeline_ = world.group("pipeline", ring);
    const int own = pipeline_rank(), p = mesh_.pipeline_ranks;
    if (own == 0 || own == p - 1) {
      embeddings_ = world.group("embeddings", {ring.front(), ring.back()});
    }
    for (int from = 0; from < p; ++from) {
      const int to = (from + 1) % p;
      if (own != from && own != to) continue;
      std::vector<int> ends = {ring[static_cast<std::size_t>(from)],
                               ring[static_cast<std::size_t>(to)]};
      std::ranges::sort(ends);
      const auto connect = [&](const char* name, int sender) {
        return channels_.all
            .emplace_back(
                std::make_unique<Channel>(world.group(name, ends), own == sender, message_streams))
            .get();
      };
      (own == from ? channels_.activations_out : channels_.activations_in) =
          connect("activations", from);
      (own == from ? channels_.gradients_in : channels_.gradients_out) = connect("gradients", to);
    }
  }

  // Waits for pipeline ranks, which may still compute.
  template <class Work>
  void pipeline_collective(Stream& compute, const Work& work) {
    communicate(
        compute, [&] { work(*pipeline_); }, Phase::bubble);
    wait_for_communication(compute, Phase::bubble);
  }

  // A collective may make the calling thread wait, and so the compute stream.
  template <class Work>
  void timed(Stream& compute, Phase phase, const Work& work) {
    timed_phase(clock_, phase, compute, work);
  }

  Mesh mesh_;
  int rank_ = 0;
  std::unique_ptr<Communicator> all_, shard_, replica_;
  std::unique_ptr<Communicator> tensor_, data_;  // null if they are groups of one or of all ranks
  std::unique_ptr<Communicator> pipeline_, embeddings_;  // null if pipelines have one rank
  PipelineChannels channels_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> computed_, communicated_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace llmc
