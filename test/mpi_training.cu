// Trains on several ranks and prints a checksum of losses, norms, weights and moments. Ranks are
// threads, or processes that communicate by MPI, by TCP or by the test double of NCCL
// (test/nccl_double); test_mpi_ranks.py, test_tcp_programs.py and test_nccl_ranks.py compare them.
//
//   mpi_training RANKS ZERO SHARD_GROUP MICRO_BATCHES TP SEQUENCE_PARALLEL VOCABULARY
//                PIPELINE_RANKS CHUNKS STAGE_LAYERS BACKEND [RECOMPUTE OFFLOAD OPTIMIZER_ON]
//
// MICRO_BATCHES are per data rank; SEQUENCE_PARALLEL is 0 or 1; STAGE_LAYERS are the numbers of
// layers of all stages, such as 2,1,1, or - for even stages; BACKEND is threads, mpi, tcp or nccl;
// RECOMPUTE, OFFLOAD and OPTIMIZER_ON are values of these flags.
#define DOCTEST_CONFIG_IMPLEMENT  // rank_rig.h uses helpers of doctest tests
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/signal_request.h"
#include "llmc/comm/mpi_bootstrap.h"
#include "llmc/comm/mpi_world.h"
#include "llmc/comm/nccl_world.h"
#include "llmc/comm/tcp_world.h"
#include "llmc/comm/thread_ranks.h"
#include "test/nccl_double/double.h"
#include "test/rank_rig.h"

namespace {

using namespace llmc_test;

// Sequences whose tokens are from the whole vocabulary, so that every tensor rank has targets in
// its slice of the head.
SampleSource samples_of(std::int64_t vocabulary) {
  const auto factor = static_cast<std::int32_t>(vocabulary / kVocabulary);
  return {[factor](std::int64_t first, std::int64_t B) {
    Batch batch = random_batch(first, B);
    for (std::int32_t& token : batch.inputs) token *= factor;
    for (std::int32_t& token : batch.targets) token *= factor;
    return batch;
  }};
}

// The layers of all stages of a pipeline. Without requested numbers, there are at least the layers
// of run_config, so that stages in the middle have more than the others.
std::int64_t layers_of(const RunConfig& config) {
  const std::vector<std::int64_t> requested = config.stage_layers();
  if (requested.empty())
    return std::max<std::int64_t>(config.shape.layers, config.pipeline_shape().stages());
  return std::accumulate(requested.begin(), requested.end(), std::int64_t{0});
}

struct Arguments {
  int ranks, zero, shard_group;
  std::int64_t micro_batches;
  int tensor_ranks;
  bool sequence_parallel;
  std::int64_t vocabulary;
  int pipeline_ranks, chunks;
  std::string stage_layers, backend, recompute = "none", offload = "none", optimizer_on = "device";
};

RunConfig config_of(const Arguments& arguments) {
  const Mesh mesh = make_mesh(arguments.ranks, arguments.shard_group, arguments.tensor_ranks,
                              arguments.pipeline_ranks);
  RunConfig config = run_config(mesh, arguments.zero, arguments.micro_batches);
  config.shape.heads = std::max<std::int64_t>(config.shape.heads, mesh.tensor_ranks);
  config.shape.channels = 8 * config.shape.heads;
  config.shape.vocabulary = arguments.vocabulary;
  config.ranks.sequence_parallel = arguments.sequence_parallel;
  config.ranks.pp = mesh.pipeline_ranks;
  config.ranks.pp_chunks = arguments.chunks;
  if (arguments.stage_layers != "-") {
    std::istringstream layers(arguments.stage_layers);
    for (std::string count; std::getline(layers, count, ',');)
      config.ranks.pp_layers.push_back(count);
  }
  config.shape.layers = layers_of(config);
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    if (arguments.recompute == choice_name(mode)) config.memory.recompute = mode;
  }
  std::istringstream kinds(arguments.offload);
  for (std::string kind; std::getline(kinds, kind, ',');) config.memory.offload.push_back(kind);
  if (arguments.optimizer_on == "cpu") config.memory.optimizer_on = OptimizerOn::cpu;
  config.pipeline =
      make_pipeline(config.pipeline_shape(), config.shape.layers, config.stage_layers());
  return config;
}

void train_and_print(World& world, const RunConfig& config) {
  Rank<float> rank(world, config);
  Checksum sum;
  for (const StepResult& step : train(rank, samples_of(config.shape.vocabulary), 2)) {
    const double numbers[] = {step.loss, static_cast<double>(step.optimizer.gradient_norm)};
    sum.add(std::as_bytes(std::span(numbers)));
  }
  const std::vector<float> values = kept_values(rank.state(), rank.stream());
  sum.add(std::as_bytes(std::span(values)));
  if (world.rank() == 0) std::cout << checksum_text(sum.value()) << std::endl;
}

std::unique_ptr<World> open_processes(const std::string& backend) {
  std::unique_ptr<Bootstrap> mpi = std::make_unique<MpiBootstrap>();
  if (backend == "mpi") return std::make_unique<MpiWorld>(std::move(mpi));
  if (backend == "tcp") return std::make_unique<TcpWorld>(mpi);
  require(backend == "nccl", "unknown backend '" + backend + "'");
  return std::make_unique<NcclWorld>(std::move(mpi),
                                     WaitLimits{.deadline = std::chrono::minutes(1)});
}

}  // namespace

int main(int count, char** texts) {
  SignalRequest::start_thread("mpi_training");
  std::unique_ptr<World> world;
  try {
    require(count == 12 || count == 15,
            "usage: mpi_training RANKS ZERO SHARD_GROUP MICRO_BATCHES TP SEQUENCE_PARALLEL "
            "VOCABULARY PIPELINE_RANKS CHUNKS STAGE_LAYERS|- threads|mpi|tcp|nccl "
            "[RECOMPUTE OFFLOAD OPTIMIZER_ON]");
    const auto number = [&](int i) { return std::stoi(texts[i]); };
    const Arguments arguments = {.ranks = number(1),
                                 .zero = number(2),
                                 .shard_group = number(3),
                                 .micro_batches = number(4),
                                 .tensor_ranks = number(5),
                                 .sequence_parallel = number(6) == 1,
                                 .vocabulary = number(7),
                                 .pipeline_ranks = number(8),
                                 .chunks = number(9),
                                 .stage_layers = texts[10],
                                 .backend = texts[11],
                                 .recompute = count == 15 ? texts[12] : "none",
                                 .offload = count == 15 ? texts[13] : "none",
                                 .optimizer_on = count == 15 ? texts[14] : "device"};
    const RunConfig config = config_of(arguments);
    if (arguments.backend == "threads") {
      run_thread_ranks(arguments.ranks, [&](World& threads) { train_and_print(threads, config); });
      return 0;
    }
    world = open_processes(arguments.backend);
    train_and_print(*world, config);
    const nccl_double::Double& nccl = nccl_double::Double::instance();
    require(
        nccl.misuses == 0 && nccl.aborted == 0 && (nccl.calls > 0) == (arguments.backend == "nccl"),
        nccl_double::report());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "mpi_training: " << error.what() << std::endl;
    if (world) world->abort(1);
    return 1;
  }
}
