// The connections to rank 0 that the bootstrap and the control threads share, with ranks of one
// process on the loopback interface.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llmc/comm/tcp_hub.h"
#include "test/support.h"
#include "test/tcp_sockets.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using Hubs = std::vector<std::shared_ptr<TcpHub>>;

// The next `count` messages for a user of a hub. Control threads of the `others` run too.
std::vector<tcp::Message> receive(TcpHub& hub, TcpHub::User user, std::size_t count,
                                  const Hubs& others = {}) {
  std::vector<tcp::Message> messages;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (messages.size() < count && std::chrono::steady_clock::now() < end) {
    for (tcp::Message& message : hub.receive(user)) messages.push_back(std::move(message));
    for (const auto& other : others) CHECK(other->receive(TcpHub::control).empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(messages.size() == count);
  return messages;
}

}  // namespace

TEST_SUITE("tcp_hub") {
  TEST_CASE("a program without the key of the run is not a rank of it") {
    connect_hubs(2, [](int port) {
      HubSettings stranger = hub_settings(1, 2, port, std::chrono::seconds(1));
      stranger.key = "another key";
      CHECK(complaint([&] { TcpHub hub(stranger); })
                .starts_with("rank 1 of 2 could not connect to rank 0 (a place) within 1 s: the "
                             "program there is not rank 0 of this run"));
      // A rank that gave up because nothing answered in time.
      std::string error;
      tcp::Connection(tcp::connect_to("127.0.0.1", port, &error))
          .send({tcp::MessageKind::hello, 1, 2, "key"});
    });
  }

  TEST_CASE("each user gets its own messages, in order, and both the end of a connection") {
    Hubs hubs = connect_hubs(2);
    const std::vector<int> descriptors = hubs[0]->descriptors();
    REQUIRE(descriptors.size() == 1);
    hubs[1]->send({tcp::MessageKind::text, 1, 0, "a"});
    hubs[1]->send({tcp::MessageKind::state, 7, 0, "b"});  // of rank 1, whatever it tells
    hubs[1]->send({tcp::MessageKind::text, 1, 0, std::string(100000, 'c')});
    hubs[1]->send({tcp::MessageKind::ended, 1, 0, ""});
    hubs[1]->send({tcp::MessageKind::closed, 1, 0, "not by a message"});
    hubs[1].reset();
    const auto texts = receive(*hubs[0], TcpHub::bootstrap, 3);
    CHECK(texts[0].text == "a");
    CHECK(texts[1].text == std::string(100000, 'c'));
    CHECK(texts[2].kind == tcp::MessageKind::closed);
    CHECK(texts[2].text.empty());
    const auto others = receive(*hubs[0], TcpHub::control, 3);
    CHECK(others[0].text == "b");
    CHECK(others[0].from == 1);
    CHECK(others[1].kind == tcp::MessageKind::ended);
    CHECK(others[2].kind == tcp::MessageKind::closed);
    CHECK(others[2].from == 1);
    CHECK(hubs[0]->descriptors().empty());
    CHECK(::fcntl(descriptors[0], F_GETFD) != -1);  // another thread may still poll it
    hubs[0]->send({tcp::MessageKind::text, 0, 1, "to a rank that has ended"});
    CHECK(hubs[0]->receive(TcpHub::bootstrap).empty());
  }

  TEST_CASE("the control thread of rank 0 passes on texts between other ranks") {
    const Hubs hubs = connect_hubs(3);
    hubs[1]->send({tcp::MessageKind::text, 1, 3, "to no rank"});
    hubs[1]->send({tcp::MessageKind::text, 1, 2, "text"});
    const tcp::Message message = receive(*hubs[2], TcpHub::bootstrap, 1, {hubs[0]})[0];
    CHECK(message.text == "text");
    CHECK(message.from == 1);
  }

  TEST_CASE("both users of a rank send and receive at the same time") {
    constexpr int kMessages = 500;
    const Hubs hubs = connect_hubs(2);
    std::atomic<int> num_received{0};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    {
      std::vector<std::jthread> threads;
      for (const int rank : {0, 1}) {
        for (const auto user : {TcpHub::bootstrap, TcpHub::control}) {
          threads.emplace_back([&, rank, user] {
            const auto kind =
                user == TcpHub::control ? tcp::MessageKind::state : tcp::MessageKind::text;
            int next = 0;
            for (int number = 0; number < kMessages; ++number) {
              hubs[static_cast<std::size_t>(rank)]->send(
                  {kind, rank, 1 - rank, std::to_string(number)});
              static_cast<void>(hubs[static_cast<std::size_t>(rank)]->descriptors());
            }
            while (next < kMessages && std::chrono::steady_clock::now() < end) {
              for (const auto& message : hubs[static_cast<std::size_t>(rank)]->receive(user)) {
                if (message.kind == kind && message.text == std::to_string(next)) ++next;
              }
            }
            num_received += next;
          });
        }
      }
    }
    CHECK(num_received == 4 * kMessages);
  }
}
