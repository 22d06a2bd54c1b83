#include "llmc/comm/tcp_bootstrap.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

#include "llmc/base/number_text.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/tcp_address.h"

namespace llmc {

TcpBootstrap::TcpBootstrap(const TcpSettings& settings)
    : settings_(settings), peers_(static_cast<std::size_t>(settings.ranks)) {
  if (rank() == 0) {
    accept_ranks();
  } else {
    connect();
  }
  for (const auto& peer : peers_) {
    const std::string address = peer ? tcp::local_address(peer->socket()) : "";
    if (!address.empty() && !tcp::is_loopback(address)) address_ = address;
  }
  const std::vector<std::string> machines = all_gather(machine_text());
  places_ = {.rank = rank(), .ranks = settings.ranks, .local_rank = 0, .local_ranks = 0};
  for (int other = 0; other < settings.ranks; ++other) {
    if (machines[other] != machines[rank()]) continue;
    ++places_.local_ranks;
    if (other < rank()) ++places_.local_rank;
  }
  places_.local_rank = settings.local_rank.value_or(places_.local_rank);
}

TcpBootstrap::~TcpBootstrap() {
  if (!failure_.empty() || std::uncaught_exceptions() > exceptions_) return;
  if (rank() > 0) send(0, tcp::MessageKind::goodbye, rank(), 0, "");
  if (rank() > 0) return;
  try {
    wait_until("the other ranks have not ended", [&] {
      return std::none_of(peers_.begin(), peers_.end(), [](const auto& peer) { return !!peer; });
    });
  } catch (const Error&) {
    // The other ranks report their errors.
  }
}

std::vector<std::string> TcpBootstrap::all_gather(const std::string& text) {
  if (rank() > 0) {
    send_text(0, text);
    return unpack_texts(receive(0, "rank 0 sent no text"));
  }
  std::vector<std::string> texts = {text};
  for (int other = 1; other < settings_.ranks; ++other) {
    texts.push_back(receive(other, "rank " + std::to_string(other) + " sent no text"));
  }
  const std::string packed = pack_texts(texts);
  for (int other = 1; other < settings_.ranks; ++other) send_text(other, packed);
  return texts;
}

std::string TcpBootstrap::broadcast(const std::string& name, const std::vector<int>& members,
                                    std::string bytes) {
  const int first = members.front();
  if (rank() != first) {
    return receive(
        first, "group '" + name + "': rank " + std::to_string(first) + " has not made the group");
  }
  for (const int member : members) {
    if (member != first) send_text(member, bytes);
  }
  check();
  return bytes;
}

void TcpBootstrap::check() {
  receive_all();
  if (!failure_.empty()) fail_because_of_peer(failure_);
}

void TcpBootstrap::abort(int) {
  failure_ = "this rank was aborted";
  for (auto& peer : peers_) peer.reset();
}

std::string TcpBootstrap::seconds_text() const {
  return number_text("%g", std::chrono::duration<double>(settings_.deadline).count()) + " s";
}

std::string TcpBootstrap::receive(int from, const std::string& error) {
  std::deque<std::string>& texts = texts_[from];
  wait_until(error, [&] { return !texts.empty(); });
  std::string text = std::move(texts.front());
  texts.pop_front();
  return text;
}

void TcpBootstrap::receive_all() {
  for (int other = 0; other < settings_.ranks; ++other) {
    while (peers_[other]) {
      if (const std::optional<tcp::Message> message = peers_[other]->next()) {
        take(other, *message);
      } else if (peers_[other]->is_open()) {
        break;
      } else {
        peers_[other].reset();
        report("rank " + std::to_string(other) + " has failed or ended");
      }
    }
  }
}

void TcpBootstrap::take(int peer, const tcp::Message& message) {
  if (message.kind == tcp::MessageKind::failed) return report(message.text);
  if (message.kind == tcp::MessageKind::goodbye) return peers_[peer].reset();
  if (message.to == rank()) {
    texts_[message.from].push_back(message.text);
  } else if (rank() == 0 && 0 < message.to && message.to < settings_.ranks) {
    send(message.to, message.kind, message.from, message.to, message.text);
  }
}

void TcpBootstrap::report(const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason;
  for (int other = 1; rank() == 0 && other < settings_.ranks; ++other) {
    send(other, tcp::MessageKind::failed, 0, other, reason);
  }
}

void TcpBootstrap::accept_ranks() {
  if (settings_.ranks == 1) return;
  std::string error;
  const tcp::Socket listener = tcp::listen_on(settings_.address, settings_.port, &error);
  if (!listener.is_open()) {
    fail("rank 0 cannot listen on port " + std::to_string(settings_.port) +
             " (MASTER_PORT): " + error,
         "set MASTER_PORT to a free port, for all ranks");
  }
  const auto end = std::chrono::steady_clock::now() + settings_.deadline;
  std::vector<std::unique_ptr<tcp::Connection>> arrivals;
  std::string refusal;
  for (std::string missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
    if (std::chrono::steady_clock::now() >= end) {
      report("of " + std::to_string(settings_.ranks) + " ranks, these did not connect within " +
             seconds_text() + ": " + missing + refusal);
      fail(failure_);
    }
    if (listener.wait(POLLIN, std::chrono::milliseconds(10))) {
      arrivals.push_back(std::make_unique<tcp::Connection>(
          tcp::Socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC))));
    }
    for (auto& arrival : arrivals) greet(arrival, refusal);
    std::erase_if(arrivals, [](const auto& arrival) { return !arrival || !arrival->is_open(); });
  }
}

std::string TcpBootstrap::missing_ranks() const {
  std::string missing;
  for (int other = 1; other < settings_.ranks; ++other) {
    if (!peers_[other]) missing += (missing.empty() ? "" : ", ") + std::to_string(other);
  }
  return missing;
}

void TcpBootstrap::greet(std::unique_ptr<tcp::Connection>& arrival, std::string& refusal) {
  const std::optional<tcp::Message> hello = arrival->greeting();
  if (!hello) return;
  std::string reason;
  if (hello->to != settings_.ranks) {
    reason = "rank 0 has " + std::to_string(settings_.ranks) + " ranks in WORLD_SIZE, rank " +
             std::to_string(hello->from) + " has " + std::to_string(hello->to);
  } else if (hello->from < 1 || hello->from >= settings_.ranks || peers_[hello->from]) {
    reason = "two processes are rank " + std::to_string(hello->from);
  } else {
    peers_[hello->from] = std::move(arrival);
    return send(hello->from, tcp::MessageKind::hello, 0, hello->from, "");
  }
  arrival->send({tcp::MessageKind::failed, 0, hello->from, reason});
  arrival.reset();
  refusal = "; " + reason;
}

void TcpBootstrap::connect() {
  const auto end = std::chrono::steady_clock::now() + settings_.deadline;
  std::string error;
  while (!finds_rank_0(end, error)) {
    if (std::chrono::steady_clock::now() >= end) {
      fail("rank " + std::to_string(rank()) + " of " + std::to_string(settings_.ranks) +
               " could not connect to rank 0 (MASTER_ADDR " + settings_.place() + ") within " +
               seconds_text() + ": " + error,
           "start rank 0 on that machine, and allow connections to that port");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool TcpBootstrap::finds_rank_0(std::chrono::steady_clock::time_point end, std::string& error) {
  tcp::Connection connection(tcp::connect_to(settings_.address, settings_.port, &error));
  if (!connection.is_open()) return false;
  const std::optional<tcp::Message> answer =
      connection.answer_to({tcp::MessageKind::hello, rank(), settings_.ranks, ""}, end);
  if (answer && answer->kind == tcp::MessageKind::failed) fail_because_of_peer(answer->text);
  if (!tcp::is_accepted(answer)) {
    error = tcp::kNotRank0;
    return false;
  }
  peers_[0] = std::make_unique<tcp::Connection>(std::move(connection));
  return true;
}

}  // namespace llmc
