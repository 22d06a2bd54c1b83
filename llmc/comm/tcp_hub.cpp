#include "llmc/comm/tcp_hub.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <thread>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/comm/tcp_address.h"

namespace llmc {

namespace {

constexpr std::chrono::seconds kGreetingTime{10};
constexpr std::size_t kMaxArrivals = 256;

}  // namespace

TcpHub::TcpHub(HubSettings settings, tcp::Socket listener)
    : settings_(std::move(settings)), peers_(static_cast<std::size_t>(settings_.ranks)) {
  if (settings_.rank == 0) {
    accept_ranks(listener);
  } else {
    connect();
  }
}

void TcpHub::send(const tcp::Message& message) {
  const std::lock_guard lock(mutex_);
  deliver(message);
}

std::vector<tcp::Message> TcpHub::receive(User user) {
  const std::lock_guard lock(mutex_);
  read_all();
  return std::exchange(arrived_[user], {});
}

std::vector<int> TcpHub::descriptors() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> descriptors;
  for (const auto& peer : peers_) {
    if (peer && peer->connection.is_open()) {
      descriptors.push_back(peer->connection.socket().descriptor());
    }
  }
  return descriptors;
}

std::string TcpHub::address() const {
  std::string external;
  for (const auto& peer : peers_) {
    const std::string address = peer ? tcp::local_address(peer->connection.socket()) : "";
    if (!address.empty() && !tcp::is_loopback(address)) external = address;
  }
  return external;
}

void TcpHub::read_all() {
  for (int other = 0; other < settings_.ranks; ++other) {
    std::optional<Peer>& peer = peers_[static_cast<std::size_t>(other)];
    if (!peer || peer->is_closed) continue;
    while (auto message = peer->connection.next()) take(other, std::move(*message));
    if (peer->connection.is_open()) continue;
    peer->is_closed = true;
    for (auto& messages : arrived_) {
      messages.push_back({tcp::MessageKind::closed, other, settings_.rank, ""});
    }
  }
}

void TcpHub::take(int peer, tcp::Message message) {
  if (settings_.rank == 0) message.from = peer;
  if (message.kind == tcp::MessageKind::closed) return;  // only this object tells that
  if (message.kind == tcp::MessageKind::text && message.to != settings_.rank) {
    if (settings_.rank == 0) deliver(message);
    return;
  }
  arrived_[message.kind < tcp::MessageKind::state ? bootstrap : control].push_back(
      std::move(message));
}

void TcpHub::deliver(const tcp::Message& message) {
  const int peer = settings_.rank == 0 ? message.to : 0;
  if (peer < 0 || peer >= settings_.ranks) return;
  if (auto& other = peers_[static_cast<std::size_t>(peer)]) other->connection.send(message);
}

void TcpHub::accept_ranks(const tcp::Socket& listener) {
  const auto end = Clock::now() + settings_.deadline;
  std::vector<Arrival> arrivals;
  std::string refusal;
  for (std::string missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
    if (Clock::now() >= end) {
      const std::string reason = "of " + std::to_string(settings_.ranks) +
                                 " ranks, these did not connect within " +
                                 seconds_text(settings_.deadline) + ": " + missing + refusal;
      for (int other = 1; other < settings_.ranks; ++other) {
        deliver({tcp::MessageKind::failed, 0, other, reason});
      }
      fail(reason);
    }
    if (listener.wait(POLLIN, std::chrono::milliseconds(10))) {
      if (arrivals.size() == kMaxArrivals) arrivals.erase(arrivals.begin());
      arrivals.push_back({tcp::Connection(tcp::Socket(
                              ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC))),
                          Clock::now() + kGreetingTime});
    }
    std::erase_if(arrivals, [&](Arrival& arrival) { return greet(arrival, refusal); });
  }
}

std::string TcpHub::missing_ranks() const {
  std::string missing;
  for (int other = 1; other < settings_.ranks; ++other) {
    if (!peers_[static_cast<std::size_t>(other)]) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(other);
    }
  }
  return missing;
}

bool TcpHub::greet(Arrival& arrival, std::string& refusal) {
  const std::optional<tcp::Message> hello = arrival.connection.greeting();
  if (!hello) return !arrival.connection.is_open() || Clock::now() >= arrival.end;
  if (hello->text != settings_.key) return true;
  const std::string reason = refusal_of(*hello);
  if (reason.empty()) {
    peers_[static_cast<std::size_t>(hello->from)].emplace(std::move(arrival.connection));
    deliver({tcp::MessageKind::hello, 0, hello->from, ""});
  } else {
    arrival.connection.send({tcp::MessageKind::failed, 0, hello->from, reason});
    refusal = "; " + reason;
  }
  return true;
}

std::string TcpHub::refusal_of(const tcp::Message& hello) const {
  if (hello.to != settings_.ranks) {
    return "rank 0 has " + std::to_string(settings_.ranks) + " ranks in WORLD_SIZE, rank " +
           std::to_string(hello.from) + " has " + std::to_string(hello.to);
  }
  const bool is_new = 0 < hello.from && hello.from < settings_.ranks &&
                      !peers_[static_cast<std::size_t>(hello.from)];
  return is_new ? "" : "two processes are rank " + std::to_string(hello.from);
}

void TcpHub::connect() {
  const auto end = Clock::now() + settings_.deadline;
  std::string error = "no address is known";
  do {
    for (const std::string& address : settings_.addresses) {
      if (finds_rank_0(address, end, error)) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < end);
  fail("rank " + std::to_string(settings_.rank) + " of " + std::to_string(settings_.ranks) +
           " could not connect to rank 0 (" + settings_.place + ") within " +
           seconds_text(settings_.deadline) + ": " + error,
       settings_.hint);
}

bool TcpHub::finds_rank_0(const std::string& address, Clock::time_point end, std::string& error) {
  tcp::Connection connection(tcp::connect_to(address, settings_.port, &error));
  if (!connection.is_open()) return false;
  const std::optional<tcp::Message> answer = connection.answer_to(
      {tcp::MessageKind::hello, settings_.rank, settings_.ranks, settings_.key}, end);
  if (answer && answer->kind == tcp::MessageKind::failed) fail_because_of_peer(answer->text);
  if (!answer || answer->kind != tcp::MessageKind::hello || answer->from != 0) {
    error = "the program there is not rank 0 of this run";
    return false;
  }
  peers_[0].emplace(std::move(connection));
  return true;
}

}  // namespace llmc
