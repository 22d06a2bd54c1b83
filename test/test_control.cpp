// Who is lost, and where each rank is: the call log, the choice of the ranks that others wait for,
// the text of a loss, and the store. test_lost_programs.py has ranks as processes.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/comm/call_log.h"
#include "llmc/control/control.h"
#include "llmc/control/loss.h"
#include "llmc/control/lost_file.h"
#include "llmc/control/main_backtrace.h"
#include "llmc/control/rank_store.h"
#include "llmc/control/store_client.h"
#include "test/support.h"
#include "test/tcp_sockets.h"

using namespace llmc;

namespace {

SeenRank in_call(const std::string& call, std::vector<int> members, bool is_in_call = true) {
  SeenRank rank;
  rank.state = {.host = "node",
                .step = 7,
                .operation = "training",
                .num_calls = 3,
                .is_in_call = is_in_call,
                .call = call,
                .group = "shard",
                .members = std::move(members),
                .seconds = 1.5};
  return rank;
}

CommCall all_reduce(std::int64_t number) {
  return {.number = number, .kind = CommKind::all_reduce, .element = Element::fp32, .count = 8};
}

// Receives until a message of this kind has arrived.
template <class Other>
tcp::Message next_of(ControlLink& link, tcp::MessageKind kind, const Other& other) {
  const auto end = ControlClock::now() + std::chrono::seconds(20);
  while (ControlClock::now() < end) {
    for (tcp::Message& message : link.receive(ControlClock::now())) {
      if (message.kind == kind) return message;
    }
    other();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  fail("the message has not come");
}

}  // namespace

TEST_SUITE("control") {
  TEST_CASE("the log has the call that a rank is in, and the last 1,024") {
    CallLog log;
    const int group = log.add_group("shard", {0, 2, 5});
    CHECK(log.state().last.sequence == 0);
    log.set_work(3, "training");
    {
      const CallLog::Scope scope(&log, group, all_reduce(1), -1);
      const CallLog::State state = log.state();
      CHECK(state.step == 3);
      CHECK(state.last.sequence == 1);
      CHECK_FALSE(state.last.left.has_value());
      CHECK(state.last.bytes() == 32);
    }
    CHECK(log.state().last.left.has_value());
    {
      const CallLog::Scope message(&log, group, {.number = 1, .kind = CommKind::message}, 2);
      CHECK(log.state().last.peer == 5);
    }
    for (int i = 2; i <= 1500; ++i) {
      const CallLog::Scope scope(&log, group, all_reduce(i), -1);
    }
    const std::vector<LoggedCall> calls = log.calls();
    REQUIRE(calls.size() == CallLog::kKept);
    CHECK(calls.back().call.number == 1500);
    CHECK(calls.front().call.number == 1500 - 1023);
  }

  TEST_CASE("a call in a stream is left when its query answers, in order") {
    CallLog log;
    const int group = log.add_group("all", {0, 1});
    bool is_first_done = false, is_second_done = true;
    for (bool* const is_done : {&is_first_done, &is_second_done}) {
      const CallLog::Scope scope(&log, group, all_reduce(is_done == &is_first_done ? 1 : 2), -1);
      log.set_query([is_done] { return *is_done; });
    }
    CHECK(log.state().last.call.number == 1);
    CHECK_FALSE(log.state().last.left.has_value());
    const std::int64_t events = log.state().num_events;
    is_first_done = true;
    CHECK(log.state().last.call.number == 2);
    CHECK(log.state().last.left.has_value());
    CHECK(log.state().num_events > events);
  }

  TEST_CASE("a call that an exception ends is not left") {
    CallLog log;
    const int group = log.add_group("all", {0, 1});
    try {
      const CallLog::Scope scope(&log, group, all_reduce(1), -1);
      fail("another rank has failed");
    } catch (const Error&) {
    }
    CHECK_FALSE(log.state().last.left.has_value());
  }

  TEST_CASE("a state and a table are the same after a message") {
    const std::vector<SeenRank> table = {in_call("all-reduce 4", {0, 1}), {}};
    const std::vector<SeenRank> same = unpack_table(pack_table(table));
    REQUIRE(same.size() == 2);
    CHECK(same[0].state.members == table[0].state.members);
    CHECK(place_text(same[0].state) == place_text(table[0].state));
    CHECK(place_text(same[0].state) ==
          "step 7, training, in all-reduce 4 of group 'shard' since 1.5 s");
    CHECK_THROWS_AS(unpack_table("x"), Error);
    CHECK_THROWS_AS(unpack_state(""), Error);
    CHECK_THROWS_AS(unpack_loss("12345678"), Error);
  }

  TEST_CASE("others wait for the ranks that are in no call, otherwise for those in another one") {
    const std::vector<int> all = {0, 1, 2, 3};
    const SeenRank here = in_call("all-reduce 4", all);
    SUBCASE("one computes") {
      CHECK(ranks_behind({here, here, in_call("all-reduce 3", all, false), here}) ==
            std::vector<int>{2});
    }
    SUBCASE("one waits for the one that computes") {
      const std::vector<int> pair = {1, 2};
      CHECK(ranks_behind({here, in_call("all-gather 9", pair), in_call("all-gather 8", pair, false),
                          here}) == std::vector<int>{2});
    }
    SUBCASE("one is in another call, and waits for one that is not behind") {
      const std::vector<int> pair = {1, 2};
      CHECK(ranks_behind({here, here, in_call("all-gather 9", pair), here}) == std::vector<int>{2});
    }
    SUBCASE("two ranks in two calls") {
      CHECK(ranks_behind({in_call("all-reduce 4", {0, 1}), in_call("all-gather 4", {0, 1})}) ==
            std::vector<int>{0, 1});
    }
    SUBCASE("one has ended") {
      SeenRank ended = here;
      ended.is_ended = true;
      CHECK(ranks_behind({here, here, here, ended}) == std::vector<int>{3});
    }
    SUBCASE("one is silent, and was in an earlier call") {
      SeenRank silent = in_call("all-reduce 3", all);
      silent.silent_seconds = 10;
      CHECK(ranks_behind({here, silent, here, here}) == std::vector<int>{1});
    }
    SUBCASE("all are in the call") {
      CHECK(ranks_behind({here, here, here, here}).empty());
    }
    SUBCASE("a rank outside the group does not count") {
      const SeenRank part = in_call("all-reduce 4", {0, 1});
      CHECK(ranks_behind({part, in_call("all-reduce 3", {0, 1}, false),
                          in_call("broadcast 1", {2, 3}, false), in_call("broadcast 1", {2, 3})}) ==
            std::vector<int>{1, 2});
    }
  }

  TEST_CASE("the text of a loss names the rank, the call, and where the others are") {
    const std::vector<int> all = {0, 1, 2};
    const std::vector<SeenRank> table = {in_call("all-reduce 4", all),
                                         in_call("all-reduce 3", all, false),
                                         in_call("all-reduce 4", all)};
    CHECK(loss_text({.kind = Loss::Kind::silence, .ranks = {1}, .seconds = 30}, table) ==
          "rank 1 (node) is lost: no sign of life for 30.0 s\n"
          "  rank 1 at its last sign of life: step 7, training, in no call since 1.5 s, after "
          "all-reduce 3 of group 'shard'\n"
          "  ranks 0, 2: step 7, training, in all-reduce 4 of group 'shard' since 1.5 s");
    CHECK(loss_text({.kind = Loss::Kind::failure, .ranks = {1}, .reason = "a reason"}, table) ==
          "rank 1 (node) has failed: a reason");
    CHECK(loss_text({.kind = Loss::Kind::hang, .seconds = 300}, table)
              .starts_with("a call does not end, though all its ranks are in it, for 300.0 s: a "
                           "connection between them does not work\n  ranks 0, 2: "));
    const Loss loss = {Loss::Kind::hang, {0, 2}, 1.25, 3, "text"};
    const Loss same = unpack_loss(pack_loss(loss));
    CHECK(same.kind == loss.kind);
    CHECK(same.ranks == loss.ranks);
    CHECK(same.seconds == loss.seconds);
    CHECK(same.exit_code == 3);
    CHECK(same.reason == "text");
  }

  TEST_CASE("the store answers questions and reports a connection that ends") {
    std::vector<std::shared_ptr<TcpHub>> hubs = llmc_test::connect_hubs(3);
    RankStore store(hubs[0], 3, {.heartbeat_timeout = 60});
    std::vector<std::unique_ptr<StoreClient>> clients(2);
    for (int rank = 1; rank < 3; ++rank) {
      clients[static_cast<std::size_t>(rank) - 1] =
          std::make_unique<StoreClient>(std::move(hubs[static_cast<std::size_t>(rank)]), rank);
    }
    const auto serve = [&] {
      for (const tcp::Message& message : store.receive(ControlClock::now())) {
        if (message.kind == tcp::MessageKind::ask)
          store.send({tcp::MessageKind::state, 0, 0, pack_state({})});
      }
    };
    SUBCASE("all ranks live") {
      clients[0]->send({tcp::MessageKind::ask, 1, 0, ""});
      const tcp::Message answer = next_of(*clients[0], tcp::MessageKind::answer, [&] {
        serve();
        for (const tcp::Message& message : clients[1]->receive(ControlClock::now())) {
          if (message.kind == tcp::MessageKind::ask)
            clients[1]->send({tcp::MessageKind::state, 2, 0, pack_state({})});
        }
        clients[0]->send({tcp::MessageKind::state, 1, 0, pack_state({})});
      });
      CHECK(answer.text.empty());
    }
    SUBCASE("a rank that does not answer is named") {
      clients[0]->send({tcp::MessageKind::ask, 1, 0, ""});
      const tcp::Message answer = next_of(*clients[0], tcp::MessageKind::answer, serve);
      CHECK(answer.text == "ranks 1, 2");
    }
    SUBCASE("a connection that ends is a loss") {
      clients[1].reset();
      const tcp::Message message = next_of(*clients[0], tcp::MessageKind::loss, serve);
      CHECK(unpack_loss(message.text).ranks == std::vector<int>{2});
    }
    SUBCASE("a rank that has told its end is no loss") {
      clients[1]->send({tcp::MessageKind::ended, 2, 0, ""});
      clients[1].reset();
      const tcp::Message message = next_of(*clients[0], tcp::MessageKind::table, serve);
      CHECK(unpack_table(message.text).size() == 3);
      CHECK_THROWS_AS(unpack_loss(""), Error);
    }
    SUBCASE("a failure of rank 0 reaches the others before its end") {
      const Loss failure = {Loss::Kind::failure, {0}, 0, 2, "why"};
      store.send({tcp::MessageKind::loss, 0, 0, pack_loss(failure)});
      store.send({tcp::MessageKind::ended, 0, 0, ""});
      CHECK(unpack_loss(next_of(*clients[0], tcp::MessageKind::loss, [] {}).text).reason == "why");
    }
  }

  // A signal that arrives then must not be announced as a save.
  TEST_CASE("nothing is confirmed while a loss is reported") {
    const int port = llmc_test::free_port();
    const pid_t child = ::fork();  // which the loss ends
    if (child == 0) {
      llmc_test::run_threads(2, [&](int rank) {
        TcpBootstrap bootstrap(llmc_test::settings_of(rank, 2, port));
        std::atomic<bool> is_reported = false;
        const auto report = [&](const std::string&, int) { is_reported = true; };
        Control control(bootstrap, {}, {report, [](const std::string&) {}});
        if (rank == 1) control.leave(3, "a fault of this rank");
        while (!is_reported) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::string silent;
        ::_exit(control.asks_all_ranks(silent) ? 1 : 0);
      });
      ::_exit(2);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }

  TEST_CASE("signs of life are much more frequent than the limits") {
    using std::chrono::milliseconds;
    CHECK(ControlSettings{}.interval() == milliseconds(1000));
    CHECK(ControlSettings{.heartbeat_timeout = 30, .comm_timeout = 2}.interval() ==
          milliseconds(200));
    CHECK(ControlSettings{.heartbeat_timeout = 5, .comm_timeout = 300}.interval() ==
          milliseconds(500));
  }

  TEST_CASE("the report of a rank is JSON with its calls and its backtrace") {
    const llmc_test::TemporaryDirectory folder;
    CallLog log;
    const int group = log.add_group("pair", {3, 4});
    const CallLog::Scope scope(&log, group, {.number = 2, .kind = CommKind::message, .count = 5},
                               1);
    MainBacktrace::install();
    std::vector<std::string> lines;
    std::thread([&] { lines = MainBacktrace::lines(); }).join();
    const auto path = write_lost_file(folder.path(), {.rank = 3,
                                                      .ranks = 5,
                                                      .reason = "why",
                                                      .own = rank_state(log.state(), 0),
                                                      .calls = log.calls(),
                                                      .backtrace = {"main"}});
    CHECK(path == folder.path() / "lost" / "3.json");
    const Json json = parse_json(read_file(path), "the report");
    CHECK(json["rank"].number() == 3);
    REQUIRE(json["calls"].size() == 1);
    CHECK(json["calls"][0]["peer"].number() == 4);
    CHECK(json["calls"][0]["left"].is_null());
    CHECK(json["backtrace"][0].text() == "main");
  }
}
