// Trains on several ranks and prints a checksum of losses, norms, weights and moments;
// test_mpi_ranks.py compares ranks of MPI with ranks as threads.
//
//   mpi_training RANKS ZERO SHARD_GROUP MICRO_BATCHES [threads]
#define DOCTEST_CONFIG_IMPLEMENT  // rank_rig.h uses helpers of doctest tests
#include <bit>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/comm/open_world.h"
#include "llmc/comm/thread_ranks.h"
#include "test/rank_rig.h"

namespace {

using namespace llmc_test;

void train_and_print(World& world, const RunConfig& config) {
  Rank<float> rank(world, config);
  Checksum sum;
  for (const StepResult& step : train(rank, {random_batch}, 2)) {
    const double numbers[] = {step.loss, static_cast<double>(step.optimizer.gradient_norm)};
    sum.add(std::as_bytes(std::span(numbers)));
  }
  const std::vector<float> values = kept_values(rank.state(), rank.stream());
  sum.add(std::as_bytes(std::span(values)));
  if (world.rank() == 0) std::cout << checksum_text(sum.value()) << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  std::unique_ptr<World> world;
  try {
    require(count >= 5, "usage: mpi_training RANKS ZERO SHARD_GROUP MICRO_BATCHES [threads]");
    const auto number = [&](int i) { return std::atoi(arguments[i]); };
    const RunConfig config = run_config(make_mesh(number(1), number(3)), number(2), number(4));
    if (count > 5) {
      run_thread_ranks(number(1), [&](World& threads) { train_and_print(threads, config); });
      return 0;
    }
    world = open_world(process_info_from_environment());
    train_and_print(*world, config);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "mpi_training: " << error.what() << std::endl;
    if (world) world->abort(1);
    return 1;
  }
}
