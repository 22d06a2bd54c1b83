#include <algorithm>
#include <cstddef>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/models/gpt2/block_activations.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/stage.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/plan/offload_traffic.h"
#include "llmc/plan/step_traffic.h"

namespace llmc {

OffloadBytes OffloadTraffic::of(Place place, const OffloadPlaces& places) const {
  OffloadBytes sum;
  if (places.optimizer.place == place) sum += optimizer;
  if (places.gradients.place == place) sum += gradients;
  if (places.parameters.place == place) sum += parameters;
  if (places.activations.place == place) sum += activations;
  return sum;
}

namespace {

bool is_offloaded(const OffloadPlace& place) {
  return place.place != Place::device;
}

// A rank's part of the training state.
class StateTraffic {
 public:
  StateTraffic(const ModelConfig& config, const RunShape& run, const Mesh& mesh, int rank,
               std::int64_t micro_batches, std::int64_t size)
      : config_(config),
        run_(run),
        mesh_(mesh),
        pipeline_rank_(mesh.pipeline_rank(rank)),
        micro_batches_(micro_batches),
        size_(size),
        table_(gpt2_parameters(config, {mesh.tensor_rank(rank), mesh.tensor_ranks, pipeline_rank_},
                               run)),
        layout_(table_, run.zero_stage, mesh.shard_ranks, mesh.shard_rank(rank)) {}

  // Moments, and the master weights of half precision: read and written by the update. If the CPU
  // updates them, gradients and weights that are not in host memory move instead: the gradients
  // there, the new weights back, and weights in fp32 in both directions.
  OffloadBytes optimizer() const {
    if (run_.offload.optimizer_on_cpu) return update_on_cpu();
    const std::int64_t arrays = size_ == kFloat ? 2 : 3;
    const std::int64_t bytes = arrays * kFloat * layout_.trainable_shard_size();
    return {bytes, bytes};
  }

  // The sum of the micro-batches so far arrives before, and leaves after each further one. The
  // update on the device reads the rank's piece.
  OffloadBytes gradients() const {
    OffloadBytes bytes;
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      const std::int64_t sum = kFloat * (layout_.shards_gradients() ? bucket.piece : bucket.stored);
      const std::int64_t piece = kFloat * bucket.piece;
      bytes += {(micro_batches_ - 1) * sum + (run_.offload.optimizer_on_cpu ? 0 : piece),
                (micro_batches_ - 1) * sum + piece};
    }
    return bytes += {shared_embeddings(), shared_embeddings()};
  }

  // A pass reads a block that is in no slot. The update writes the rank's piece; fp32 weights are
  // their own masters, so it also reads that. Whole weights are gathered from the pieces.
  OffloadBytes parameters() const {
    OffloadBytes bytes;
    const std::vector<std::int64_t> reads =
        gathers_of_blocks(run_.pipeline, pipeline_rank_, config_.layers, table_, micro_batches_);
    for (std::size_t block = 0; block < reads.size(); ++block) {
      for (const Bucket* bucket : layout_.held_buckets(block)) {
        bytes.to_device +=
            reads[block] * size_ * (layout_.shards_weights() ? bucket->piece : bucket->stored);
      }
    }
    for (const Bucket& bucket : layout_.trainable_buckets()) {
      if (!bucket.is_held) continue;
      const std::int64_t piece = size_ * bucket.piece;
      if (!run_.offload.optimizer_on_cpu || run_.offload.parameters.place == Place::disk) {
        bytes += {size_ == kFloat ? piece : 0, piece};
      }
      if (layout_.shards() > 1 && !layout_.shards_weights()) {
        bytes += {piece, size_ * bucket.stored};
      }
    }
    return bytes;
  }

 private:
  static constexpr std::int64_t kFloat = sizeof(float);

  OffloadBytes update_on_cpu() const {
    const std::int64_t pieces = layout_.trainable_shard_size();
    OffloadBytes bytes;
    if (run_.offload.gradients.place != Place::host) {
      bytes.from_device += kFloat * pieces + shared_embeddings();
    }
    if (run_.offload.parameters.place != Place::host) {
      bytes += {size_ * pieces, size_ == kFloat ? kFloat * pieces : 0};
    }
    return bytes;
  }

  // The rank's piece of the gradient that a pipeline's tied embeddings add up.
  std::int64_t shared_embeddings() const {
    const ParameterSpec& head = table_.head();
    const bool is_shared = mesh_.pipeline_ranks > 1 && table_.tied_head() && head.trainable;
    return is_shared && head.is_held ? kFloat * layout_.own_part(head).size : 0;
  }

  ModelConfig config_;
  RunShape run_;
  Mesh mesh_;
  int pipeline_rank_;
  std::int64_t micro_batches_, size_;
  ParameterTable table_;
  ShardLayout layout_;
};

// The blocks of a rank's stages, whose activations pass through two slots (offloaded_blocks.h).
class ActivationTraffic {
 public:
  // `micro_batches` in flight at most (pipeline_runner.h).
  ActivationTraffic(const RunShape& run, const KeptBlocks& kept,
                    std::array<std::int64_t, 3> bytes_of_mode, std::size_t micro_batches)
      : run_(run), kept_(kept), bytes_of_mode_(bytes_of_mode), in_flight_(micro_batches, kFree) {}

  void forward(const Stage& stage, std::int64_t micro_batch) {
    const auto place = std::ranges::find(in_flight_, kFree);
    *place = {stage.first, micro_batch};
    const std::int64_t number = place - in_flight_.begin();
    for (std::int64_t layer = stage.first; layer < stage.end; ++layer) {
      const std::int64_t i = kept_.place(stage, layer);
      last_ = has({number, i}) ? slot_of({number, i}) : take({number, i});
      if (kept_.has_backward(layer)) bytes_.from_device += size(i);
    }
    if (!kept_.has_backward(stage)) *place = kFree;
  }
  void backward(const Stage& stage, std::int64_t micro_batch) {
    const auto place = std::ranges::find(in_flight_, Pass{stage.first, micro_batch});
    const std::int64_t number = place - in_flight_.begin();
    for (std::int64_t i = stage.end - kept_.first_backward(stage) - 1; i >= 0; --i) {
      fetch({number, i});
      last_ = slot_of({number, i});
      if (i > 0) fetch({number, i - 1});
    }
    *place = kFree;
  }
  const OffloadBytes& bytes() const { return bytes_; }

 private:
  using Pass = std::array<std::int64_t, 2>;   // first layer of the stage, micro-batch
  using Block = std::array<std::int64_t, 2>;  // place in `in_flight_`, place in the stage
  static constexpr Pass kFree = {-1, -1};

  std::int64_t size(std::int64_t index) const {
    return bytes_of_mode_[static_cast<std::size_t>(run_.recompute_of(index))];
  }
  bool has(const Block& block) const { return slots_[0] == block || slots_[1] == block; }
  std::size_t slot_of(const Block& block) const { return slots_[0] == block ? 0 : 1; }
  std::size_t take(const Block& block) {
    const std::size_t slot = last_ == 0 ? 1 : 0;
    slots_[slot] = block;
    return slot;
  }
  void fetch(const Block& block) {
    if (has(block)) return;
    take(block);
    bytes_.to_device += size(block[1]);
  }

  const RunShape& run_;
  const KeptBlocks& kept_;
  std::array<std::int64_t, 3> bytes_of_mode_;
  std::vector<Pass> in_flight_;
  std::array<Block, 2> slots_{{{-1, -1}, {-1, -1}}};
  std::size_t last_ = 2;  // none
  OffloadBytes bytes_;
};

// The bytes that a block of each mode keeps on a rank.
std::array<std::int64_t, 3> kept_bytes(Dtype dtype, const ModelConfig& config, const RunShape& run,
                                       const KeptBlocks& kept, const Mesh& mesh, int rank) {
  std::array<std::int64_t, 3> bytes{};
  dispatch_dtype(dtype, [&]<class T>() {
    Context context({}, Ranks(mesh, rank));
    MemoryPlan unused;
    context.tensor.reserve(run, config.channels, sizeof(T), unused);
    for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
      MemoryPlan plan;
      BlockActivations<T> block;
      BlockReservation<T>(config, run, kept, context.tensor, plan).kept(block, mode);
      bytes[static_cast<std::size_t>(mode)] = plan.total();
    }
  });
  return bytes;
}

OffloadBytes activations(Dtype dtype, const ModelConfig& config, const RunShape& run,
                         const Mesh& mesh, std::int64_t micro_batches, int rank) {
  const int pipeline_rank = mesh.pipeline_rank(rank);
  const int in_flight = run.pipeline.single() ? 1 : run.pipeline.slots(pipeline_rank);
  const KeptBlocks kept(gpt2_parameters(config, {}, run), run);
  ActivationTraffic traffic(run, kept, kept_bytes(dtype, config, run, kept, mesh, rank),
                            static_cast<std::size_t>(in_flight));
  // The first step begins with empty slots.
  OffloadBytes first_step;
  for (int step = 0; step < 2; ++step) {
    first_step = traffic.bytes();
    for_each_pass(
        run.pipeline, pipeline_rank, config.layers, micro_batches,
        [&](const Stage& stage, std::int64_t i) { traffic.forward(stage, i); },
        [&](const Stage& stage, std::int64_t i) { traffic.backward(stage, i); });
  }
  return traffic.bytes() - first_step;
}

}  // namespace

OffloadTraffic offload_traffic(Dtype dtype, const ModelConfig& config, const RunShape& run,
                               const Mesh& mesh, std::int64_t micro_batches, int rank) {
  const StateTraffic state(config, run, mesh, rank, micro_batches, element_bytes(dtype));
  OffloadTraffic traffic;
  if (is_offloaded(run.offload.optimizer)) traffic.optimizer = state.optimizer();
  if (is_offloaded(run.offload.gradients)) traffic.gradients = state.gradients();
  if (is_offloaded(run.offload.parameters)) traffic.parameters = state.parameters();
  if (is_offloaded(run.offload.activations)) {
    traffic.activations = activations(dtype, config, run, mesh, micro_batches, rank);
  }
  return traffic;
}

}  // namespace llmc
