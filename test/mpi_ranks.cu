// Checks with ranks as processes; test_mpi_ranks.py starts it with mpirun, and test_tcp_programs.py
// without. The last argument may be a choice of the library (mpi, nccl or tcp) instead of
// `automatic`.
//
//   mpi_ranks collectives       all checks of test/comm_checks.h; prints the number of ranks once
//   mpi_ranks fail RANK         this rank throws while the others wait for it
//   mpi_ranks die               rank 1 is killed while its message to rank 0 arrives
//   mpi_ranks differ            the ranks make different calls
//   mpi_ranks posts SECONDS     rank 0 posts two messages and destroys its communicator; rank 1
//                               takes one of them after SECONDS and prints that it is right
//   mpi_ranks idle SECONDS      rank 0 comes late to a barrier; prints how much processor time the
//                               other ranks used while they waited
//   mpi_ranks places            prints the place of every rank on its machine
//   mpi_ranks time BYTES        prints the median time of an all-reduce, in microseconds
#define DOCTEST_CONFIG_IMPLEMENT  // comm_checks.h uses helpers of doctest tests
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "llmc/comm/open_world.h"
#include "test/comm_checks.h"

namespace {

using namespace llmc;

void posts(World& world, int seconds) {
  Stream stream;
  auto group = world.all("posts");
  if (world.rank() == 0) {
    const std::int64_t n = llmc_test::large_message();
    for (int i = 0; i < 2; ++i) llmc_test::post_and_overwrite<float>(*group, n, 1, stream);
    group.reset();
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    llmc_test::check_receive<float>(*group, llmc_test::large_message(), 0, stream);
  }
  // Rank 1 has its communicator until all is posted: no rank can post to a rank that has left.
  world.all("later")->barrier(stream);
  if (world.rank() == 1) std::cout << "the message is right" << std::endl;
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void collectives(World& world) {
  llmc_test::check_world(world);
  if (world.rank() == 0) std::cout << world.ranks() << " ranks" << std::endl;
}

void fail_on(World& world, int failing) {
  Stream stream;
  const auto group = world.all();
  group->barrier(stream);
  if (world.rank() == failing) fail("out of paper");
  group->barrier(stream);
}

void die(World& world) {
  Stream stream;
  const auto group = world.all();
  const std::int64_t n = std::int64_t{1} << 24;
  group->barrier(stream);
  if (world.rank() == 1) {
    const Buffer<float> values(n);
    fill_zero(values.data(), n, stream);
    group->post(make_tensor(values.data(), n), 0, stream);
    std::raise(SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));  // connections are full
  if (world.rank() == 0) llmc_test::check_receive<float>(*group, n, 1, stream);
  group->barrier(stream);
}

void time_all_reduce(World& world, std::int64_t bytes) {
  Stream stream;
  const auto group = world.all();
  const std::int64_t n = bytes / 4;
  const Buffer<float> values(n);
  fill_zero(values.data(), n, stream);
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    group->barrier(stream);
    const auto begin = std::chrono::steady_clock::now();
    group->all_reduce(make_tensor(values.data(), n), stream);
    stream.synchronize();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count());
  }
  std::ranges::sort(times);
  if (world.rank() == 0) std::cout << times[times.size() / 2] << std::endl;
}

void differ(World& world) {
  Stream stream;
  const auto group = world.all();
  const Buffer<float> values(8);
  fill_zero(values.data(), 8, stream);
  group->all_reduce(make_tensor(values.data(), world.rank() == 0 ? 4 : 6), stream);
}

void idle(World& world, int seconds) {
  Stream stream;
  const auto group = world.all();
  group->barrier(stream);
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double before = processor_seconds();
  group->barrier(stream);
  const double used = processor_seconds() - before;
  if (world.rank() != 0) std::cout << std::to_string(used) + "\n" << std::flush;
}

void places(World& world) {
  std::cout << "rank " + std::to_string(world.rank()) + " of " + std::to_string(world.ranks()) +
                   ", on its machine " + std::to_string(world.local_rank()) + " of " +
                   std::to_string(world.local_ranks()) + "\n"
            << std::flush;
}

void run(const std::string& name, int number, World& world) {
  if (name == "collectives") return collectives(world);
  if (name == "fail") return fail_on(world, number);
  if (name == "die") return die(world);
  if (name == "time") return time_all_reduce(world, number);
  if (name == "differ") return differ(world);
  if (name == "posts") return posts(world, number);
  if (name == "idle") return idle(world, number);
  if (name == "places") return places(world);
  fail("unknown check '" + name + "'");
}

CommChoice choice_of(const std::string& argument) {
  if (argument == "nccl") return CommChoice::nccl;
  if (argument == "tcp") return CommChoice::tcp;
  return argument == "mpi" ? CommChoice::mpi : CommChoice::automatic;
}

}  // namespace

int main(int count, char** arguments) {
  std::unique_ptr<World> world;
  try {
    const std::string name = count > 1 ? arguments[1] : "",
                      argument = count > 2 ? arguments[2] : "";
    world = open_world(process_info_from_environment(), choice_of(arguments[count - 1]));
    run(name, std::atoi(argument.c_str()), *world);
    return 0;
  } catch (const std::exception& error) {
    const std::string rank = world ? "rank " + std::to_string(world->rank()) + ": " : "";
    std::cerr << "mpi_ranks: " + rank + error.what() + "\n" << std::flush;
    if (world) world->abort(1);
    return 1;
  }
}
