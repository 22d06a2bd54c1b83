// Ports, settings, threads and foreign connections for tests of ranks that TCP connects, on the
// loopback interface.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/tcp_bootstrap.h"
#include "llmc/comm/tcp_hub.h"
#include "test/support.h"

namespace llmc_test {

namespace tcp = llmc::tcp;
using llmc::TcpSettings;

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Listens on a port that was free; `port` 0 chooses one.
inline tcp::Socket listen_on_port(int& port) {
  tcp::Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = loopback(port);
  socklen_t size = sizeof address;
  auto* const general = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(socket.descriptor(), general, size) == 0);
  REQUIRE(::listen(socket.descriptor(), 8) == 0);
  REQUIRE(::getsockname(socket.descriptor(), general, &size) == 0);
  port = ntohs(address.sin_port);
  return socket;
}

inline int free_port() {
  int port = 0;
  listen_on_port(port);
  return port;
}

inline TcpSettings settings_of(int rank, int ranks, int port,
                               std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  TcpSettings settings;
  settings.rank = rank;
  settings.ranks = ranks;
  settings.address = "127.0.0.1";
  settings.port = port;
  settings.deadline = deadline;
  return settings;
}

// A connection of another program, which sends `bytes`.
inline tcp::Socket foreign_connection(int port, const std::string& bytes) {
  const sockaddr_in address = loopback(port);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    tcp::Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) == 0) {
      if (!bytes.empty()) ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return tcp::Socket();
}

// A rank's greeting of the bootstrap, after the 8 bytes that all messages of ours begin with.
inline std::string greeting_numbers(std::int32_t rank, std::int32_t ranks) {
  const std::int32_t numbers[] = {0, rank, ranks, 0};
  return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}

inline std::vector<TcpSettings> settings_of_all(
    int ranks, int port, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  std::vector<TcpSettings> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(settings_of(rank, ranks, port, deadline));
  return all;
}

inline llmc::HubSettings hub_settings(
    int rank, int ranks, int port, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  return {.rank = rank,
          .ranks = ranks,
          .addresses = {"127.0.0.1"},
          .port = port,
          .key = "key",
          .deadline = deadline,
          .place = "a place",
          .hint = "a hint"};
}

// The connections of ranks of this process; calls strangers(port) first, while rank 0 listens.
inline std::vector<std::shared_ptr<llmc::TcpHub>> connect_hubs(
    int ranks, const std::function<void(int)>& strangers = [](int) {}) {
  int port = 0;
  tcp::Socket listener = listen_on_port(port);
  std::vector<std::shared_ptr<llmc::TcpHub>> hubs(static_cast<std::size_t>(ranks));
  std::jthread rank_0([&] {
    hubs[0] = std::make_shared<llmc::TcpHub>(hub_settings(0, ranks, port), std::move(listener));
  });
  strangers(port);
  for (int rank = 1; rank < ranks; ++rank) {
    hubs[static_cast<std::size_t>(rank)] =
        std::make_shared<llmc::TcpHub>(hub_settings(rank, ranks, port));
  }
  rank_0.join();
  return hubs;
}

// Calls body(rank) on a thread per rank; returns the error of each, empty if there is none.
inline std::vector<std::string> run_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { errors[static_cast<std::size_t>(rank)] = complaint([&] { body(rank); }); });
  }
  threads.clear();
  return errors;
}

}  // namespace llmc_test
