// Messages between two ranks over a pair of sockets, and addresses. test_tcp_world.cu tests whole
// worlds.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/tcp_address.h"
#include "llmc/comm/tcp_transport.h"
#include "test/support.h"
#include "test/tcp_sockets.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using Bytes = std::vector<unsigned char>;
using std::chrono::milliseconds;

// Two sockets that are connected with each other.
std::pair<tcp::Socket, tcp::Socket> socket_pair() {
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  return {tcp::Socket(ends[0]), tcp::Socket(ends[1])};
}

// Transports of two ranks, without a world.
struct TransportPair {
  explicit TransportPair(milliseconds deadline = std::chrono::minutes(1)) {
    auto [a, b] = socket_pair();
    links[0] = all[0].add(1, std::move(a));
    links[1] = all[1].add(0, std::move(b));
    const tcp::TcpTransport::Waits waits{deadline, [] {}};
    transports.push_back(std::make_unique<tcp::TcpTransport>(
        "pair", 0, 0, std::vector<std::shared_ptr<tcp::Link>>{nullptr, links[0]}, all[0], waits));
    transports.push_back(std::make_unique<tcp::TcpTransport>(
        "pair", 1, 1, std::vector<std::shared_ptr<tcp::Link>>{links[1], nullptr}, all[1], waits));
  }
  tcp::Links all[2];
  std::shared_ptr<tcp::Link> links[2];
  std::vector<std::unique_ptr<Transport>> transports;
};

CommCall call_of(std::int64_t number, std::size_t bytes) {
  return {.number = number,
          .kind = CommKind::message,
          .element = Element::byte,
          .count = static_cast<std::int64_t>(bytes)};
}

Bytes message_of(int sender, std::size_t bytes) {
  Bytes message(bytes);
  std::iota(message.begin(), message.end(), static_cast<unsigned char>(sender));
  return message;
}

// Many times what a connection holds.
std::size_t huge_message() {
  return (tiny_shapes() ? std::size_t{1} << 22 : std::size_t{1} << 26) + 5;
}

}  // namespace

TEST_SUITE("tcp_transport") {
  TEST_CASE("huge messages in both directions at once arrive, also empty ones") {
    for (const std::size_t bytes : {huge_message(), std::size_t{0}, std::size_t{1}}) {
      TransportPair pair;
      const auto body = [&](int rank) {
        const Bytes mine = message_of(rank, bytes);
        Bytes other(bytes);
        const Outgoing send{1 - rank, mine.data(), bytes};
        const Incoming receive{1 - rank, other.data(), bytes};
        pair.transports[rank]->exchange(call_of(1, bytes), {&send, 1}, {&receive, 1});
        require(other == message_of(1 - rank, bytes), "the message is wrong");
      };
      CHECK(run_threads(2, body) == std::vector<std::string>(2));
    }
  }

  TEST_CASE("ranks that disagree on the size of a message report it") {
    TransportPair pair;
    const Bytes bytes(8);
    Bytes room(9);
    const Outgoing send{1, bytes.data(), bytes.size()};
    pair.transports[0]->post(call_of(1, 8), send);
    const Incoming receive{0, room.data(), room.size()};
    CHECK(complaint([&] {
            pair.transports[1]->exchange(call_of(1, 8), {}, {&receive, 1});
          }) == "ranks disagree on the size of a message");
  }

  TEST_CASE("a rank that ends in the middle of a message is named") {
    TransportPair pair;
    const Bytes bytes = message_of(1, huge_message());
    pair.transports[1]->post(call_of(1, bytes.size()), {0, bytes.data(), bytes.size()});
    Bytes room(bytes.size());
    const Incoming receive{1, room.data(), room.size()};
    std::jthread end([&] {
      std::this_thread::sleep_for(milliseconds(20));
      pair.all[1].shut_down();
    });
    Bytes more(1);
    const Incoming later{1, more.data(), 1};
    const std::string error = complaint([&] {
      pair.transports[0]->exchange(call_of(1, bytes.size()), {}, {&receive, 1});
      pair.transports[0]->exchange(call_of(2, 1), {}, {&later, 1});
    });
    CHECK(contains(error, "rank 1 has failed or ended: it"));
    CHECK(contains(error, "(group 'pair', message "));
    const Outgoing send{1, more.data(), 1};
    CHECK(contains(complaint([&] {
                     for (;;) pair.transports[0]->exchange(call_of(1, 1), {&send, 1}, {});
                   }),
                   "rank 1 has failed or ended: "));
  }

  TEST_CASE("after an error, the memory of a message is not used any more") {
    TransportPair pair;
    const Bytes bytes(huge_message());
    Bytes room(8);
    pair.transports[1]->post(call_of(7, 8), {0, room.data(), room.size()});
    const Outgoing send{1, bytes.data(), bytes.size()};
    const Incoming receive{1, room.data(), room.size()};
    CHECK(contains(complaint([&] {
                     pair.transports[0]->exchange(call_of(1, 8), {&send, 1}, {&receive, 1});
                   }),
                   "rank 1 message 7 of 8 bytes"));
    CHECK(!pair.links[0]->has_unsent());
    CHECK(pair.links[0]->failure() == "a message was withdrawn after an error");
  }

  TEST_CASE("a rank that nothing arrives from is reported after the deadline") {
    TransportPair pair(milliseconds(100));
    Bytes room(4);
    const Incoming receive{1, room.data(), room.size()};
    CHECK(complaint([&] {
            pair.transports[0]->exchange(call_of(3, 4), {}, {&receive, 1});
          }) ==
          "group 'pair', message 3 of 4 bytes: nothing arrived from or left for rank 1 for 0.1 s");
  }

  TEST_CASE("data that are not a message are refused") {
    auto [own, other] = socket_pair();
    tcp::Link link(4, std::move(own));
    CHECK(link.next() == nullptr);
    CHECK(link.failure() == "");
    tcp::LinkHeader header{.call = call_of(1, 0)};
    REQUIRE(::send(other.descriptor(), &header, sizeof header, 0) == sizeof header);
    REQUIRE(link.next() != nullptr);
    CHECK(link.next()->call == call_of(1, 0));
    CHECK(link.read(nullptr));
    header.call.kind = static_cast<CommKind>(kCommKinds);
    REQUIRE(::send(other.descriptor(), &header, sizeof header, 0) == sizeof header);
    CHECK(link.next() == nullptr);
    CHECK(link.failure() == "it sent data that are not a message");
  }

  TEST_CASE("addresses") {
    CHECK(tcp::is_loopback("127.0.1.1"));
    CHECK(tcp::is_loopback("::1"));
    CHECK(!tcp::is_loopback("10.127.0.1"));
    for (const std::string& address : tcp::interface_addresses()) {
      CHECK(!tcp::is_loopback(address));
    }
    std::string error;
    const tcp::Socket listener = tcp::listen_on("", 0, &error);
    REQUIRE(listener.is_open());
    const tcp::Socket client = tcp::connect_to("127.0.0.1", tcp::local_port(listener), &error);
    REQUIRE(client.is_open());
    CHECK(tcp::local_address(client) == "127.0.0.1");
    const tcp::Socket server(::accept(listener.descriptor(), nullptr, nullptr));
    CHECK(tcp::local_address(server) == "127.0.0.1");  // not ::ffff:127.0.0.1
  }
}
