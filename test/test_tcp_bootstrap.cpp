// Ranks that find each other over TCP, with ranks as threads on the loopback interface.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "llmc/comm/first_report.h"
#include "llmc/comm/launcher.h"
#include "llmc/comm/tcp_address.h"
#include "llmc/comm/tcp_bootstrap.h"
#include "test/support.h"
#include "test/tcp_sockets.h"

using namespace llmc;
using namespace llmc_test;

namespace {

constexpr std::chrono::milliseconds kShort{1000};  // a deadline that passes

// Calls body(bootstrap) on a thread per settings; returns the error of each, empty if there is
// none.
std::vector<std::string> run_processes(const std::vector<TcpSettings>& processes,
                                       const std::function<void(TcpBootstrap&)>& body) {
  std::vector<std::string> errors(processes.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      threads.emplace_back([&, i] {
        errors[i] = complaint([&] {
          TcpBootstrap bootstrap(processes[i]);
          body(bootstrap);
        });
      });
    }
  }
  return errors;
}

// All members get `number` from the first one.
void check_broadcast(TcpBootstrap& bootstrap, const std::vector<int>& members, char number) {
  const bool is_first = bootstrap.places().rank == members.front();
  const std::string id =
      bootstrap.broadcast("group", members, std::string(128, is_first ? number : '\0'));
  require(id == std::string(128, number), "the id is wrong");
}

void check_groups(TcpBootstrap& bootstrap) {
  const Places& places = bootstrap.places();
  require(places.local_rank == places.rank && places.local_ranks == places.ranks, "local ranks");
  const std::vector<std::string> lines =
      bootstrap.all_gather(std::string("rank\n\0 ", 7) + std::to_string(places.rank));
  require(static_cast<int>(lines.size()) == places.ranks, "lines");
  for (int rank = 0; rank < places.ranks; ++rank) {
    require(lines[rank] == std::string("rank\n\0 ", 7) + std::to_string(rank), "line of a rank");
  }
  std::vector<int> all;
  for (int rank = 0; rank < places.ranks; ++rank) all.push_back(rank);
  for (char number = 1; number <= 3; ++number) check_broadcast(bootstrap, all, number);
  const int first = places.rank / 2 * 2;
  if (first + 1 >= places.ranks) return;
  for (char number = 4; number <= 6; ++number) {
    check_broadcast(bootstrap, {first, first + 1}, static_cast<char>(number + first));
  }
}

// The bytes by which a rank greets rank 0.
std::string receive_greeting(const tcp::Socket& caller) {
  std::string bytes(24, '\0');
  REQUIRE(::recv(caller.descriptor(), bytes.data(), bytes.size(), MSG_WAITALL) == 24);
  return bytes;
}

void set_variables(const std::vector<std::pair<const char*, const char*>>& values) {
  for (const char* const name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
        "PMIX_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "RANK", "WORLD_SIZE", "LOCAL_RANK",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : values) setenv(name, value, 1);
}

std::string error_of_environment(const std::vector<std::pair<const char*, const char*>>& values) {
  set_variables(values);
  const std::string error =
      complaint([] { tcp_settings_from_environment(process_info_from_environment()); });
  set_variables({});
  return error;
}

}  // namespace

TEST_SUITE("tcp_bootstrap") {
  TEST_CASE("1, 2 and 5 ranks distribute the ids of several groups") {
    for (const int ranks : {1, 2, 5}) {
      CAPTURE(ranks);
      for (const std::string& error :
           run_processes(settings_of_all(ranks, free_port()), check_groups)) {
        CHECK(error == "");
      }
    }
  }

  TEST_CASE("groups without rank 0 can be made after its end") {
    const auto body = [](TcpBootstrap& bootstrap) {
      if (bootstrap.places().rank == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * bootstrap.places().rank));
      check_broadcast(bootstrap, {1, 2}, 9);
    };
    for (const std::string& error : run_processes(settings_of_all(3, free_port()), body)) {
      CHECK(error == "");
    }
  }

  TEST_CASE("ranks of a host name and of IPv6 find each other") {
    for (const char* const address : {"localhost", "::1"}) {
      CAPTURE(address);
      std::vector<TcpSettings> all = settings_of_all(2, free_port());
      for (TcpSettings& settings : all) settings.address = address;
      const std::vector<std::string> errors = run_processes(all, check_groups);
      if (contains(errors[0], "assign requested address")) continue;  // a machine without IPv6
      for (const std::string& error : errors) CHECK(error == "");
    }
  }

  TEST_CASE("connections of other programs are neither ranks nor obstacles") {
    const int port = free_port();
    std::vector<std::string> errors;
    {
      std::jthread first([&] { errors = run_processes({settings_of(0, 3, port)}, check_groups); });
      std::vector<tcp::Socket> others;
      for (const std::string& bytes :
           {std::string(), std::string("GET / HTTP/1.0\r\n\r\n"), std::string("l"),
            std::string("llmcrun1"), "llmcrun1" + std::string(16, '\xff'),
            std::string(100000, '\0'), "otherrun" + greeting_numbers(1, 3)}) {
        others.push_back(foreign_connection(port, bytes));
        CHECK(others.back().is_open());
      }
      others.front().close();
      for (const std::string& error :
           run_processes({settings_of(1, 3, port), settings_of(2, 3, port)}, check_groups)) {
        CHECK(error == "");
      }
    }
    CHECK(errors == std::vector<std::string>{""});
  }

  TEST_CASE("a rank that finds another program at the port of rank 0 tries again") {
    std::string error;
    tcp::Socket occupant = tcp::listen_on("127.0.0.1", 0, &error);
    REQUIRE(occupant.is_open());
    const int port = tcp::local_port(occupant);
    std::vector<std::string> errors;
    std::jthread rank([&] { errors = run_processes({settings_of(1, 2, port)}, check_groups); });
    for (const bool repeats : {false, true}) {
      const tcp::Socket caller(::accept(occupant.descriptor(), nullptr, nullptr));
      const std::string greeting = receive_greeting(caller);
      const std::string answer = repeats ? greeting : "HTTP/1.0 400 Bad Request\r\n\r\n";
      ::send(caller.descriptor(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    // A program that closes the connection.
    receive_greeting(tcp::Socket(::accept(occupant.descriptor(), nullptr, nullptr)));
    occupant.close();
    CHECK(run_processes({settings_of(0, 2, port)}, check_groups)[0] == "");
    rank.join();
    CHECK(errors == std::vector<std::string>{""});
  }

  TEST_CASE("a program that does not answer is not waited for longer than asked") {
    int port = 0;
    const tcp::Socket occupant = listen_on_port(port);
    std::string error;
    tcp::Connection connection(tcp::connect_to("127.0.0.1", port, &error));
    REQUIRE(connection.is_open());
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    CHECK(!connection.answer_to({}, end));
    CHECK(std::chrono::steady_clock::now() >= end);
    CHECK(connection.is_open());
    // Not for longer than any answer takes either: another address can be that of rank 0.
    CHECK(!connection.answer_to({}, end + std::chrono::hours(1)));
  }

  TEST_CASE("a rank that gave up before rank 0 answered can connect again") {
    const int port = free_port();
    std::vector<std::string> errors;
    std::jthread first([&] { errors = run_processes({settings_of(0, 2, port)}, check_groups); });
    foreign_connection(port, "llmcrun1" + greeting_numbers(1, 2));  // and closes it
    CHECK(run_processes({settings_of(1, 2, port)}, check_groups)[0] == "");
    first.join();
    CHECK(errors == std::vector<std::string>{""});
  }

  TEST_CASE("rank 0 can listen on the port of an earlier connection's calling end") {
    int port = 0;
    std::string error;
    const tcp::Socket listener = listen_on_port(port);
    tcp::Socket caller = tcp::connect_to("127.0.0.1", port, &error);
    REQUIRE(caller.is_open());
    const tcp::Socket callee(::accept(listener.descriptor(), nullptr, nullptr));
    const int own_port = tcp::local_port(caller);
    caller.close();  // this end, the first one to close, keeps its port for a minute
    CHECK(tcp::listen_on("127.0.0.1", own_port, &error).is_open());
  }

  TEST_CASE("no connection connects to itself") {
    const int port = free_port() ^ 1;  // the system prefers this half of the ports for callers
    std::string error;
    int num_connections = 0;
    for (int attempt = 0; attempt < 60000; ++attempt) {
      if (tcp::connect_to("127.0.0.1", port, &error).is_open()) ++num_connections;
    }
    CHECK(num_connections == 0);
    CHECK(error == "Connection refused");
  }

  TEST_CASE("a missing rank is reported by all others after the deadline") {
    const int port = free_port();
    const std::vector<std::string> errors = run_processes(
        {settings_of(0, 4, port, kShort), settings_of(2, 4, port, kShort)}, [](TcpBootstrap&) {});
    const std::string expected = "of 4 ranks, these did not connect within 1 s: 1, 3";
    CHECK(errors == std::vector<std::string>{expected, expected});
  }

  TEST_CASE("a missing rank 0 is reported with its address") {
    const int port = free_port();
    const std::string error =
        run_processes({settings_of(1, 2, port, kShort)}, [](TcpBootstrap&) {})[0];
    CHECK(contains(error, "rank 1 of 2 could not connect to rank 0 (MASTER_ADDR 127.0.0.1, port " +
                              std::to_string(port) + ") within 1 s: Connection refused"));
    TcpSettings unknown = settings_of(1, 2, port, kShort);
    unknown.address = "no-such-host.invalid";
    CHECK(contains(run_processes({unknown}, [](TcpBootstrap&) {})[0],
                   "(MASTER_ADDR no-such-host.invalid, port"));
  }

  TEST_CASE("an occupied port is reported") {
    int port = 0;
    const tcp::Socket occupant = listen_on_port(port);
    const std::vector<std::string> errors = run_processes(
        {settings_of(0, 2, port, kShort), settings_of(1, 2, port, kShort)}, [](TcpBootstrap&) {});
    CHECK(contains(errors[0], "rank 0 cannot listen on port " + std::to_string(port) +
                                  " (MASTER_PORT): Address already in use"));
    CHECK(contains(errors[1], "rank 0 "));
  }

  TEST_CASE("another number of ranks and two equal ranks are reported") {
    const int port = free_port();
    const std::vector<std::string> sizes = run_processes(
        {settings_of(0, 2, port, kShort), settings_of(1, 3, port, kShort)}, [](TcpBootstrap&) {});
    const std::string size = "rank 0 has 2 ranks in WORLD_SIZE, rank 1 has 3";
    CHECK(contains(sizes[0], "did not connect within 1 s: 1; " + size));
    CHECK(sizes[1] == size);

    const int other_port = free_port();
    const std::vector<std::string> twice =
        run_processes({settings_of(0, 3, other_port, kShort), settings_of(1, 3, other_port, kShort),
                       settings_of(1, 3, other_port, kShort)},
                      [](TcpBootstrap&) {});
    const std::string missing = "did not connect within 1 s: 2; two processes are rank 1";
    CHECK(contains(twice[0], missing));
    const std::string reason = "two processes are rank 1";
    const bool is_first_refused = twice[1] == reason;
    CHECK(contains(twice[is_first_refused ? 2 : 1], missing));
    CHECK(twice[is_first_refused ? 1 : 2] == reason);
  }

  TEST_CASE("the failure of a rank reaches the others") {
    for (const int failing : {0, 2}) {
      for (const bool throws : {false, true}) {
        CAPTURE(failing);
        CAPTURE(throws);
        const auto body = [&](TcpBootstrap& bootstrap) {
          if (bootstrap.places().rank == failing) {
            if (throws) fail("out of paper");
            return bootstrap.abort(1);
          }
          if (bootstrap.places().rank == 1) check_broadcast(bootstrap, {failing, 1}, 1);
          for (;;) bootstrap.check();
        };
        const std::vector<std::string> errors =
            run_processes(settings_of_all(4, free_port()), body);
        for (int rank = 0; rank < 4; ++rank) {
          const std::string own = throws ? "out of paper" : "";
          const std::string other = "rank " + std::to_string(failing) + " has failed or ended";
          CHECK(errors[static_cast<std::size_t>(rank)] == (rank == failing ? own : other));
        }
      }
    }
  }

  TEST_CASE("one rank of a machine reports an error, and the others have its exit code") {
    for (int repetition = 0; repetition < 20; ++repetition) {
      std::atomic<int> num_reports{0};
      const auto body = [&](TcpBootstrap& bootstrap) {
        FirstReport report(bootstrap);
        const int own_code = bootstrap.places().rank;
        if (report.begin()) {
          ++num_reports;
          report.end(own_code + 10);
          CHECK(!report.begin());
        } else {
          CHECK(report.wait().value_or(0) >= 10);
        }
      };
      for (const std::string& error : run_processes(settings_of_all(4, free_port()), body)) {
        CHECK(error == "");
      }
      CHECK(num_reports == 1);
    }
    FirstReport alone;
    CHECK(alone.begin());
    CHECK(!alone.wait());
  }

  TEST_CASE("a group that its first rank does not make is reported to all") {
    const auto late = [](TcpBootstrap& bootstrap) {
      if (bootstrap.places().rank == 0) return check_broadcast(bootstrap, {1, 0}, 1);
      for (;;) bootstrap.check();  // until the error arrives
    };
    const std::string error = "group 'group': rank 1 has not made the group within 1 s";
    CHECK(run_processes(settings_of_all(3, free_port(), kShort), late) ==
          std::vector<std::string>(3, error));
  }

  TEST_CASE(
      "addresses of this machine: each once, likely ones first, loopback only for its own ranks") {
    const std::vector<std::string> own = tcp::interface_addresses();
    CHECK(std::ranges::none_of(own, tcp::is_loopback));
    CHECK(tcp::addresses_after({}) == own);
    std::vector<std::string> expected{"192.0.2.1"};
    expected.insert(expected.end(), own.begin(), own.end());
    CHECK(tcp::addresses_after({"192.0.2.1", "", "192.0.2.1"}) == expected);
    if (!own.empty()) {
      expected = {own.back()};
      expected.insert(expected.end(), own.begin(), own.end() - 1);
      CHECK(tcp::addresses_after({own.back()}) == expected);
    }
    const std::vector<std::string> other{"192.0.2.1", "2001:db8::7"};
    CHECK(tcp::addresses_to_try(other, false) == other);
    CHECK(tcp::addresses_to_try(other, true) ==
          std::vector<std::string>{"127.0.0.1", "::1", "192.0.2.1", "2001:db8::7"});
  }

  TEST_CASE("variables of the environment") {
    set_variables({{"RANK", "3"},
                   {"WORLD_SIZE", "8"},
                   {"LOCAL_RANK", "1"},
                   {"MASTER_ADDR", "node7"},
                   {"MASTER_PORT", "29500"}});
    TcpSettings settings = tcp_settings_from_environment(process_info_from_environment());
    CHECK(settings.rank == 3);
    CHECK(settings.ranks == 8);
    CHECK(settings.local_rank == 1);
    CHECK(settings.place() == "node7, port 29500");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);  // torchrun listens on 29500
    unsetenv("LOCAL_RANK");
    settings = tcp_settings_from_environment(process_info_from_environment());
    CHECK(settings.port == 29501);
    CHECK(!settings.local_rank.has_value());
    set_variables({{"SLURM_PROCID", "1"},
                   {"SLURM_STEP_NUM_TASKS", "4"},
                   {"MASTER_ADDR", "node7"},
                   {"MASTER_PORT", "29500"}});
    CHECK(tcp_settings_from_environment(process_info_from_environment()).rank == 1);
    set_variables({});
  }

  TEST_CASE("values that are not allowed are reported with their variable") {
    using Values = std::vector<std::pair<const char*, const char*>>;
    const auto with = [](Values values) {
      Values all = {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}};
      all.insert(all.end(), values.begin(), values.end());
      return error_of_environment(all);
    };
    CHECK(with({}) == "");
    CHECK(with({{"RANK", "4"}}) ==
          "the environment variable RANK is '4'; allowed are integers from 0 to 3");
    CHECK(contains(with({{"RANK", "one"}}), "RANK is 'one'; allowed are integers from 0 to 3"));
    CHECK(contains(with({{"RANK", "-1"}}), "RANK is '-1'"));
    CHECK(contains(with({{"RANK", "1 "}}), "RANK is '1 '"));
    CHECK(contains(with({{"WORLD_SIZE", "0"}}), "WORLD_SIZE is '0'; allowed are integers from 1"));
    CHECK(contains(with({{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE is '99999999999'"));
    CHECK(contains(with({{"MASTER_PORT", "65535"}}), "integers from 1 to 65534"));
    CHECK(contains(with({{"MASTER_PORT", ""}}), "MASTER_PORT is not set"));
    CHECK(contains(with({{"MASTER_ADDR", ""}}),
                   "rank 1 of 4 (WORLD_SIZE is set): "
                   "the environment variable MASTER_ADDR is not set"));
    CHECK(contains(with({{"LOCAL_RANK", "4"}}),
                   "LOCAL_RANK is '4'; allowed are integers from 0 to 3"));
  }
}
