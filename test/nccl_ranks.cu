// Checks of the NCCL backend with ranks as processes, on a test double of NCCL that works over MPI
// (test/nccl_double); test_nccl_ranks.py starts it with mpirun. The environment injects faults
// (Faults in test/nccl_double/state.h). If it sets MASTER_PORT, a TCP bootstrap connects the ranks
// instead of MPI.
//
//   nccl_ranks collectives    all checks of test/comm_checks.h; prints the number of ranks once
//   nccl_ranks steps          three all-reduces and waits, within deadlines of 3 s
//   nccl_ranks endless        waits for a condition that never comes true, within a deadline of 3 s
//   nccl_ranks differ WHAT    the ranks differ in the count, type, root, order or length of calls
//   nccl_ranks fail RANK      this rank throws while the others wait for it
//   nccl_ranks posts          two ranks post to each other and then receive, on the same stream,
//   within
//                             deadlines of 3 s
//   nccl_ranks double         the test double reports wrong use by one rank
//   nccl_ranks nesting        the test double reports groups that differ between ranks
//
// After an error of the communicator, a program makes one more call, which must fail too, and
// prints what the double has counted.
#define DOCTEST_CONFIG_IMPLEMENT  // comm_checks.h uses helpers of doctest tests
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include "llmc/comm/mpi_bootstrap.h"
#include "llmc/comm/nccl_world.h"
#include "llmc/comm/tcp_bootstrap.h"
#include "test/comm_checks.h"
#include "test/nccl_double/double.h"

namespace {

using namespace llmc;

constexpr std::chrono::seconds kShort{3}, kLong{60};  // deadlines

void print_line(const std::string& text) {
  std::cerr << "nccl_ranks: " + text + "\n" << std::flush;
}

// A communicator of one rank is one of NCCL only if it is made directly.
void check_one_rank() {
  Stream stream;
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  NcclCommunicator single("single", 0, 1, id);
  for (const std::int64_t n : llmc_test::comm_sizes()) llmc_test::check_group(single, n, stream);
  single.wait(stream);
}

void collectives(World& world) {
  llmc_test::check_world(world);
  check_one_rank();
  const nccl_double::Double& d = nccl_double::Double::instance();
  require(d.opened > 0 && d.destroyed == d.opened && d.aborted == 0 && d.misuses == 0,
          nccl_double::report());
  require(d.in_progress > 3 * d.calls, "few calls were in progress");
  if (world.rank() == 0) std::cout << world.ranks() << " ranks" << std::endl;
}

// Runs calls of a communicator. After an error of them, another call must fail too.
template <class Body>
void run_group(World& world, const Body& body) {
  Stream stream;
  const auto group = world.all();
  const Buffer<float> values(8);
  fill_zero(values.data(), 8, stream);
  try {
    body(*group, values.data(), stream);
  } catch (const Error& error) {
    const auto again = [&] { group->barrier(stream); };
    const auto wait_again = [&] { group->wait(stream); };
    const std::string text = llmc_test::complaint(again);
    require(llmc_test::contains(text, "after the communicator was aborted: group 'world'"), text);
    require(llmc_test::contains(llmc_test::complaint(wait_again), "was aborted"), "no error");
    throw;
  }
}

void steps(World& world) {
  run_group(world, [](Communicator& group, float* x, Stream& stream) {
    for (int step = 0; step < 3; ++step) {
      group.all_reduce(make_tensor(x, 8), stream);
      group.wait(stream);
    }
  });
  if (world.rank() == 0) std::cout << "complete" << std::endl;
}

// Ranks make different calls.
void differ(World& world, const std::string& what) {
  run_group(world, [&](Communicator& group, float* x, Stream& stream) {
    const bool is_first = group.rank() == 0;
    group.barrier(stream);
    if (what == "count") group.all_reduce(make_tensor(x, is_first ? 4 : 6), stream);
    if (what == "type" && is_first) group.all_reduce(make_tensor(x, 4), stream);
    if (what == "type" && !is_first)
      group.all_reduce(make_tensor(reinterpret_cast<bf16*>(x), 4), stream);
    if (what == "root") group.broadcast(make_tensor(x, 4), is_first ? 0 : 1, stream);
    if (what == "order" && is_first) group.broadcast(make_tensor(x, 4), 0, stream);
    if (what == "length" && is_first) group.send(make_tensor(x, 4), 1, stream);
    if (what == "length" && group.rank() == 1) group.receive(make_tensor(x, 5), 0, stream);
    if (what == "later length" && is_first) {
      group.post(make_tensor(x, 4), 1, stream);
      group.post(make_tensor(x, 4), 1, stream);
    }
    if (what == "later length" && group.rank() == 1) {
      group.receive(make_tensor(x, 4), 0, stream);
      group.receive(make_tensor(x, 5), 0, stream);
    }
    group.all_reduce(make_tensor(x, 4), stream);
  });
}

// The first messages connect the ranks. The later ones hold the stream, so no receive starts.
void posts(World& world) {
  run_group(world, [](Communicator& group, float* x, Stream& stream) {
    const int other = 1 - group.rank();
    const auto values = make_tensor(x, 4);
    if (group.rank() == 0) group.post(values, other, stream);
    group.receive(values, other, stream);
    if (group.rank() == 1) group.post(values, other, stream);
    for (int i = 0; i < 3; ++i) group.post(values, other, stream);
    print_line("posted");
    group.receive(values, other, stream);
  });
}

void endless(World& world) {
  run_group(world, [](Communicator& group, float*, Stream&) {
    dynamic_cast<NcclCommunicator&>(group).wait_until("the end", [] { return false; });
  });
}

void fail_on(World& world, int failing) {
  Stream stream;
  const auto group = world.all();
  group->barrier(stream);
  if (world.rank() == failing) fail("out of paper");
  group->barrier(stream);
}

// ---- the double ----------------------------------------------------------------------------

// Uses the communicator before it is complete; `first_use` is the result.
ncclComm_t open_comm(World& world, MpiBootstrap& mpi, ncclResult_t* first_use, float* x,
                     Stream& stream) {
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  std::vector<int> members;
  for (int rank = 0; rank < world.ranks(); ++rank) members.push_back(rank);
  mpi.broadcast("double", members, std::string(id.internal, sizeof id.internal))
      .copy(id.internal, sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, world.ranks(), id, world.rank(), &config);
  *first_use = ncclAllReduce(x, x, 8, ncclFloat32, ncclSum, comm, native_stream(stream));
  return comm;
}

// The state of the communicator when its calls are complete.
ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (PollPause pause; state == ncclInProgress; pause.next()) ncclCommGetAsyncError(comm, &state);
  return state;
}

// Rank 0 makes a call in a group, the others make it alone.
void check_nesting(World& world, MpiBootstrap& mpi) {
  Stream stream;
  const Buffer<float> x(8);
  fill_zero(x.data(), 8, stream);
  ncclResult_t first_use = ncclSuccess;
  const ncclComm_t comm = open_comm(world, mpi, &first_use, x.data(), stream);
  require(state_of(comm) == ncclSuccess, "initialisation");
  if (world.rank() == 0) ncclGroupStart();
  ncclAllReduce(x.data(), x.data(), 8, ncclFloat32, ncclSum, comm, native_stream(stream));
  if (world.rank() == 0) ncclGroupEnd();
  require(state_of(comm) == ncclInvalidUsage, "different groups are reported");
  std::cout << std::string(ncclGetLastError(comm)) + "\n" << std::flush;
  require(ncclCommAbort(comm) == ncclSuccess, "abort");
}

void check_double(World& world, MpiBootstrap& mpi) {
  Stream stream;
  const Buffer<float> buffer(8);
  float* const x = buffer.data();
  fill_zero(x, 8, stream);
  const auto s = native_stream(stream);
  const int other = 1 - world.rank();
  ncclResult_t first_use = ncclSuccess;
  const ncclComm_t comm = open_comm(world, mpi, &first_use, x, stream);
  require(first_use == ncclInvalidUsage, "a use before the end of the initialisation is reported");
  require(state_of(comm) == ncclSuccess, "initialisation");

  // Both ranks send and receive: possible only in a group. A group within a group starts nothing.
  x[0] = static_cast<float>(world.rank() + 1);
  ncclGroupStart();
  ncclGroupStart();
  require(ncclSend(x, 1, ncclFloat32, other, comm, s) == ncclSuccess, "send");
  require(ncclRecv(x + 1, 1, ncclFloat32, other, comm, s) == ncclSuccess, "receive");
  require(ncclGroupEnd() == ncclSuccess && x[1] == 0, "inner end");
  require(ncclGroupEnd() == ncclInProgress, "outer end");
  require(state_of(comm) == ncclSuccess && x[1] == static_cast<float>(other + 1), "group");
  require(ncclGroupEnd() == ncclInvalidUsage, "an end without a start is reported");

  require(ncclAllReduce(x, x + 1, 4, ncclFloat32, ncclSum, comm, s) == ncclInvalidArgument,
          "overlapping operands are reported");
  require(ncclAllGather(x + other, x, 1, ncclFloat32, comm, s) == ncclInvalidArgument,
          "an operand at the place of another rank is reported");
  require(ncclReduceScatter(x, x + other, 1, ncclFloat32, ncclSum, comm, s) == ncclInvalidArgument,
          "a result at the place of another rank is reported");
  require(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument,
          "a missing stream is reported");
  require(ncclCommDestroy(comm) == ncclInvalidUsage, "destroying an open communicator is reported");
  require(ncclCommFinalize(comm) == ncclInProgress && state_of(comm) == ncclSuccess, "finalize");
  require(ncclBroadcast(x, x, 4, ncclFloat32, 0, comm, s) == ncclInvalidUsage,
          "a use after finalize is reported");
  require(ncclCommDestroy(comm) == ncclSuccess, "destroy");
  require(ncclCommAbort(comm) == ncclInvalidUsage, "an abort after destroy is reported");
  if (world.rank() == 0) std::cout << nccl_double::report() << std::endl;
}

// --------------------------------------------------------------------------------------------

void run(const std::string& name, const std::string& argument, World& world, MpiBootstrap* mpi) {
  if (name == "collectives") return collectives(world);
  if (name == "steps") return steps(world);
  if (name == "endless") return endless(world);
  if (name == "differ") return differ(world, argument);
  if (name == "posts") return posts(world);
  if (name == "fail") return fail_on(world, std::stoi(argument));
  if (name == "double") return check_double(world, *mpi);
  if (name == "nesting") return check_nesting(world, *mpi);
  fail("unknown check '" + name + "'");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string name = count > 1 ? arguments[1] : "";
  std::unique_ptr<World> world;
  try {
    MpiBootstrap* mpi = nullptr;
    std::unique_ptr<Bootstrap> bootstrap;
    if (is_variable_set("MASTER_PORT")) {
      nccl_double::start_mpi();
      bootstrap = std::make_unique<TcpBootstrap>(
          tcp_settings_from_environment(process_info_from_environment()));
    } else {
      auto started = std::make_unique<MpiBootstrap>();
      mpi = started.get();
      bootstrap = std::move(started);
    }
    const bool is_late = name == "steps" || name == "endless" || name == "posts";
    world = std::make_unique<NcclWorld>(std::move(bootstrap),
                                        WaitLimits{.deadline = is_late ? kShort : kLong});
    run(name, count > 2 ? arguments[2] : "", *world, mpi);
    return 0;
  } catch (const std::exception& error) {
    print_line((world ? "rank " + std::to_string(world->rank()) + ": " : "") + error.what());
    print_line(nccl_double::report());
    if (world) world->abort(1);
    return 1;
  }
}
