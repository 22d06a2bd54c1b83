// Ranks that make calls until one of them has a fault: for test_lost_programs.py.
//
//   lost_ranks BACKEND FAULT VICTIM STEP STEPS OUT HEARTBEAT_TIMEOUT COMM_TIMEOUT
//
// BACKEND: mpi, tcp, or nccl (on the test double). The victim has the fault in step STEP of STEPS:
//   none, kill (SIGKILL), stop (SIGSTOP), throw, loop (computes without end), skip (a collective),
//   other (enters another collective), read (of a pipe without a writer), late (starts late),
//   slow (sleeps in each step), long (works long, with signs of progress)
// Rank 0 prints "done" after the last step.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/work_progress.h"
#include "llmc/comm/first_report.h"
#include "llmc/comm/nccl_world.h"
#include "llmc/comm/open_world.h"
#include "llmc/control/control.h"
#include "llmc/control/main_backtrace.h"
#include "test/nccl_double/double.h"

namespace llmc {

std::atomic<int> one = 1;  // for a loop without end

struct Arguments {
  std::string backend, fault;
  int victim = 0, step = 0, steps = 0;
  std::filesystem::path out;
  ControlSettings settings;
};

Arguments read_arguments(int count, char** texts) {
  require(count == 9, "usage: lost_ranks BACKEND FAULT VICTIM STEP STEPS OUT HEARTBEAT COMM");
  return {texts[1],
          texts[2],
          std::stoi(texts[3]),
          std::stoi(texts[4]),
          std::stoi(texts[5]),
          texts[6],
          {.heartbeat_timeout = std::stod(texts[7]), .comm_timeout = std::stod(texts[8])}};
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// A rank in its groups: all ranks, and those with the same last bit of their number.
class LostRank {
 public:
  LostRank(const Arguments& arguments, World& world, Control& control)
      : arguments_(arguments), world_(world), control_(control) {
    std::vector<int> same;
    for (int rank = world.rank() % 2; rank < world.ranks(); rank += 2) same.push_back(rank);
    all_ = world.all("all");
    half_ = world.group("half", same);
  }

  void run() {
    for (int step = 1; step <= arguments_.steps; ++step) {
      control_.calls().set_work(step, "training");
      const bool is_now = step == arguments_.step && world_.rank() == arguments_.victim;
      if (is_now) fault();
      const std::string fault = is_now ? arguments_.fault : "";
      if (fault == "other") {
        all_->broadcast(values(4096), 0, stream_);
      } else if (fault != "skip") {
        all_->all_reduce(values(4096), stream_);
      }
      half_->all_reduce(values(1024), stream_);
      all_->wait(stream_);
      if (arguments_.fault == "slow" && world_.rank() == arguments_.victim) sleep_seconds(0.5);
      sleep_seconds(0.001);
    }
    if (world_.rank() == 0) std::cout << "done" << std::endl;
  }

 private:
  Tensor<float, 1> values(std::int64_t n) { return make_tensor(buffer_.data(), n); }

  void fault() {
    const std::string& fault = arguments_.fault;
    if (fault == "kill") ::raise(SIGKILL);
    if (fault == "stop") ::raise(SIGSTOP);
    if (fault == "throw") fail("a fault of this rank");
    if (fault == "read") read_endless();
    while (fault == "loop" && one.load() == 1) {
    }
    if (fault != "long") return;
    control_.calls().set_work(arguments_.step, "validation");
    for (int i = 0; i < 100; ++i) {
      sleep_seconds(arguments_.settings.comm_timeout / 10);
      ProgressCount::add();
    }
  }

  void read_endless() const {
    const std::string pipe = arguments_.out / "pipe";
    ::mkfifo(pipe.c_str(), 0600);
    char byte = 0;
    static_cast<void>(!::read(::open(pipe.c_str(), O_RDWR), &byte, 1));
  }

  const Arguments& arguments_;
  World& world_;
  Control& control_;
  Stream stream_;
  Buffer<float> buffer_{4096};
  std::unique_ptr<Communicator> all_, half_;
};

std::unique_ptr<World> open(const std::string& backend, std::unique_ptr<Bootstrap>& bootstrap,
                            const WaitLimits& limits) {
  if (backend == "mpi") return std::make_unique<MpiWorld>(std::move(bootstrap));
  if (backend == "tcp") return std::make_unique<TcpWorld>(bootstrap, limits);
  return std::make_unique<NcclWorld>(std::move(bootstrap), limits);
}

int run(const Arguments& arguments, const ProcessInfo& process) {
  if (arguments.fault == "late" && process.rank == arguments.victim) sleep_seconds(4);
  std::unique_ptr<Bootstrap> bootstrap = connect_ranks(process);
  FirstReport first(*bootstrap);
  SignalRequest::set_explained([first] { return first.has_begun(); });
  const auto report = [&](const std::string& text, int exit_code) {
    if (!first.begin()) return;
    Notice::interject_error("lost_ranks: " + text);
    first.end(exit_code);
  };
  const auto warn = [](const std::string& text) { Notice::interject_error("lost_ranks: " + text); };
  Control control(*bootstrap, arguments.settings, {report, warn});
  MainBacktrace::install();
  std::unique_ptr<World> world;
  try {
    world = open(arguments.backend, bootstrap, {.is_watched = true});
    world->log_calls(control.calls());
    control.set_abort([&] {
      world->abort_calls();
      if (arguments.backend == "nccl") Notice::interject_error(nccl_double::report());
    });
    const Control::Run watched(control, arguments.out, {});
    LostRank(arguments, *world, control).run();
    return 0;
  } catch (const std::exception& error) {
    if (dynamic_cast<const PeerError*>(&error) != nullptr) {
      control.wait_for_loss(std::chrono::seconds(2));
    }
    const std::string text = "rank " + std::to_string(process.rank) + ": " + error.what();
    report(text, 1);
    control.leave(1, error.what());
    if (world) world->abort(1);
    return 1;
  }
}

}  // namespace llmc

int main(int count, char** texts) {
  using namespace llmc;
  SignalRequest::start_thread("lost_ranks");
  try {
    return run(read_arguments(count, texts), process_info_from_environment());
  } catch (const std::exception& error) {
    Notice::error(std::string("lost_ranks: ") + error.what());
    return 1;
  }
}
