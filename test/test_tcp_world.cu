// Ranks that communicate over TCP, as threads of one process with sockets on the loopback
// interface. test_tcp_ranks.py starts them as processes.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/base/text_list.h"
#include "llmc/comm/tcp_bootstrap.h"
#include "llmc/comm/tcp_world.h"
#include "test/comm_checks.h"
#include "test/tcp_sockets.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using std::chrono::milliseconds;

// Calls body(world) for each of the ranks. A rank that throws aborts, as programs do.
std::vector<std::string> run_ranks(int ranks, milliseconds deadline,
                                   const std::function<void(TcpWorld&)>& body) {
  const std::vector<TcpSettings> settings = settings_of_all(ranks, free_port());
  return run_threads(ranks, [&](int rank) {
    std::unique_ptr<Bootstrap> bootstrap =
        std::make_unique<TcpBootstrap>(settings[static_cast<std::size_t>(rank)]);
    TcpWorld world(bootstrap, {.deadline = deadline});
    try {
      body(world);
    } catch (...) {
      world.abort(1);
      throw;
    }
  });
}

std::vector<std::string> run_ranks(int ranks, const std::function<void(TcpWorld&)>& body) {
  return run_ranks(ranks, std::chrono::minutes(1), body);
}

// Until another rank, which may have failed, sets it.
void wait_for(const std::atomic<bool>& flag) {
  for (int i = 0; i < 30000 && !flag; ++i) std::this_thread::sleep_for(milliseconds(1));
  require(flag, "another rank has not come");
}

const std::vector<std::string> kNoErrors2 = {"", ""};

// The ranks are on different machines as far as they know, and reach each other by `address`.
class OtherMachines final : public Bootstrap {
 public:
  OtherMachines(const TcpSettings& settings, std::string address)
      : tcp_(settings), address_(std::move(address)) {}
  const Places& places() const override { return tcp_.places(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> texts = tcp_.all_gather(text);
    for (std::size_t rank = 0; rank < texts.size() && num_calls_ == 0; ++rank) {
      std::vector<std::string> parts = unpack_texts(texts[rank]);
      parts[0] = "machine " + std::to_string(rank);
      texts[rank] = pack_texts(parts);
    }
    ++num_calls_;
    return texts;
  }
  std::string broadcast(const std::string& name, const std::vector<int>& members,
                        std::string bytes) override {
    return tcp_.broadcast(name, members, std::move(bytes));
  }
  std::string address() const override { return address_; }
  void check() override { tcp_.check(); }
  void abort(int exit_code) override { tcp_.abort(exit_code); }

 private:
  TcpBootstrap tcp_;
  std::string address_;
  int num_calls_ = 0;
};

}  // namespace

TEST_SUITE("tcp_world") {
  TEST_CASE("calls, posts and channels of 2, 3 and 4 ranks, and of their groups") {
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      CHECK(run_ranks(ranks, [](TcpWorld& world) { check_world(world); }) ==
            std::vector<std::string>(static_cast<std::size_t>(ranks)));
    }
  }

  TEST_CASE("ranks of several machines listen on all addresses") {
    const std::vector<TcpSettings> settings = settings_of_all(3, free_port());
    const auto body = [&](int rank) {
      std::unique_ptr<Bootstrap> bootstrap = std::make_unique<OtherMachines>(
          settings[static_cast<std::size_t>(rank)], "127.0.0." + std::to_string(rank + 1));
      TcpWorld world(bootstrap);
      Stream stream;
      check_group(*world.all(), 100, stream);
      std::string error;
      require(tcp::connect_to("127.0.0.99", world.port(), &error).is_open(), error);
    };
    CHECK(run_threads(3, body) == std::vector<std::string>(3));
    CHECK(run_ranks(2, [](TcpWorld& world) {
            std::string error;
            require(!tcp::connect_to("127.0.0.99", world.port(), &error).is_open(), "one machine");
          }) == kNoErrors2);
  }

  TEST_CASE("posted messages outlive the transport and the world of their sender") {
    constexpr int kMessages = 300;
    std::atomic<bool> has_ended = false;
    const auto size_of = [](int i) { return i == 7 ? std::int64_t{1} << 21 : i % 5 * 1000L; };
    const auto body = [&](TcpWorld& world) {
      Stream stream;
      auto group = world.all();
      if (world.rank() == 1) {
        for (int i = 0; i < kMessages; ++i) {
          post_and_overwrite<float>(*group, size_of(i), 0, stream);
        }
        group.reset();
        has_ended = true;
        return;
      }
      wait_for(has_ended);
      std::this_thread::sleep_for(milliseconds(100));
      for (int i = 0; i < kMessages; ++i) check_receive<float>(*group, size_of(i), 1, stream);
    };
    CHECK(run_ranks(2, body) == kNoErrors2);
  }

  TEST_CASE("ranks that make different calls report both") {
    const auto body = [](TcpWorld& world) {
      Stream stream;
      const auto group = world.all();
      const Buffer<float> values(8);
      fill_zero(values.data(), 8, stream);
      group->all_reduce(make_tensor(values.data(), world.rank() == 0 ? 4 : 6), stream);
    };
    const std::vector<std::string> errors = run_ranks(3, body);
    int num_both = 0;
    for (const std::string& error : errors) {
      CHECK(error != "");
      num_both +=
          contains(error, "all-reduce 1 of 4 fp32") && contains(error, "all-reduce 1 of 6 fp32");
    }
    CHECK(num_both > 0);
  }

  TEST_CASE("the error of a rank ends all after its report, and the others name it") {
    for (const int failing : {0, 2}) {
      std::atomic<bool> is_reported = false;
      const auto fail_and_report = [&](TcpWorld& world) {
        try {
          const auto group = world.all();
          Stream stream;
          group->barrier(stream);
          fail("out of paper");
        } catch (const Error&) {
          std::this_thread::sleep_for(milliseconds(300));  // in which the group has ended
          is_reported = true;
          throw;
        }
      };
      const auto body = [&](TcpWorld& world) {
        if (world.rank() == failing) return fail_and_report(world);
        Stream stream;
        const auto group = world.all();
        group->barrier(stream);
        const std::string error = complaint([&] { group->barrier(stream); });
        CHECK(is_reported);
        fail(error);
      };
      const std::vector<std::string> errors = run_ranks(3, body);
      for (int rank = 0; rank < 3; ++rank) {
        const std::string& error = errors[static_cast<std::size_t>(rank)];
        CAPTURE(error);
        if (rank == failing) CHECK(error == "out of paper");
        if (rank != failing) CHECK(contains(error, " has failed or ended"));
      }
    }
  }

  TEST_CASE("the failure of a rank ends waits for the others") {
    std::atomic<bool> has_ended = false;
    const auto body = [&](TcpWorld& world) {
      Stream stream;
      if (world.rank() == 2) fail("out of paper");
      const auto pair = world.group("pair", {0, 1});
      if (world.rank() == 1) return wait_for(has_ended);
      const std::string error = complaint([&] { pair->barrier(stream); });
      has_ended = true;
      fail(error);
    };
    CHECK(run_ranks(3, body)[0] == "rank 2 has failed or ended");
  }

  TEST_CASE("a group that a rank does not make is reported after the deadline") {
    const auto body = [](TcpWorld& world) {
      if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(1000));
      if (world.rank() != 1) world.all("late");
    };
    const std::vector<std::string> errors = run_ranks(3, milliseconds(300), body);
    CHECK(contains(errors[0] + errors[2], "group 'late': rank"));
    CHECK(contains(errors[0] + errors[2], "within 0.3 s"));
  }

  TEST_CASE("a rank joins equal groups while the other member still waits for an earlier group") {
    std::atomic<bool> has_joined = false;
    const auto body = [&](TcpWorld& world) {
      if (world.rank() == 2) wait_for(has_joined);
      if (world.rank() != 1) world.group("earlier", {0, 2});
      if (world.rank() == 2) return;
      const auto first = world.group("equal", {0, 1});
      const auto second = world.group("equal", {0, 1});
      has_joined = true;
      Stream stream;
      check_group(*second, 10, stream);
      check_group(*first, 10, stream);
    };
    CHECK(run_ranks(3, std::chrono::seconds(5), body) == std::vector<std::string>(3));
  }

  TEST_CASE("connections of other programs are refused, and are no obstacle") {
    std::vector<tcp::Socket> others;
    std::atomic<bool> is_ready = false;
    const auto body = [&](TcpWorld& world) {
      if (world.rank() == 0) {
        tcp::Greeting wrong_key{.group = 1, .from = 1, .to = 0};
        const std::string greeting(reinterpret_cast<const char*>(&wrong_key), sizeof wrong_key);
        for (const std::string& bytes :
             {std::string("GET / HTTP/1.0\r\n\r\n") + std::string(100, ' '),
              std::string(100000, '\0'), greeting, std::string()}) {
          others.push_back(foreign_connection(world.port(), bytes));
          CHECK(others.back().is_open());
        }
        is_ready = true;
      }
      wait_for(is_ready);
      Stream stream;
      for (int i = 0; i < 3; ++i) check_group(*world.all(), 100, stream);
    };
    CHECK(run_ranks(2, body) == kNoErrors2);
    for (const tcp::Socket& other : others) {
      char byte = 0;
      CHECK(::recv(other.descriptor(), &byte, 1, 0) <= 0);
    }
  }
}
