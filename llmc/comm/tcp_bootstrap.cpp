#include "llmc/comm/tcp_bootstrap.h"

#include <cstddef>
#include <utility>

#include "llmc/base/text_list.h"

namespace llmc {

namespace {

std::shared_ptr<TcpHub> connect(const TcpSettings& settings) {
  const HubSettings hub{.rank = settings.rank,
                        .ranks = settings.ranks,
                        .addresses = {settings.address},
                        .port = settings.port,
                        .key = "",  // a launcher gives the ranks none
                        .deadline = settings.deadline,
                        .place = "MASTER_ADDR " + settings.place(),
                        .hint = "start rank 0 on that machine, and allow connections to that port"};
  if (settings.rank > 0 || settings.ranks == 1) return std::make_shared<TcpHub>(hub);
  std::string error;
  tcp::Socket listener = tcp::listen_on(settings.address, settings.port, &error);
  if (!listener.is_open()) {
    fail("rank 0 cannot listen on port " + std::to_string(settings.port) +
             " (MASTER_PORT): " + error,
         "set MASTER_PORT to a free port, for all ranks");
  }
  return std::make_shared<TcpHub>(hub, std::move(listener));
}

}  // namespace

TcpBootstrap::TcpBootstrap(const TcpSettings& settings)
    : settings_(settings), hub_(connect(settings)) {
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
  if (std::uncaught_exceptions() > exceptions_) abort(1);
  if (!failure_.empty()) return;
  if (rank() > 0) {
    hub_->send({tcp::MessageKind::goodbye, rank(), 0, ""});
    return;
  }
  try {
    wait_until("the other ranks have not ended",
               [&] { return std::ssize(ended_) == settings_.ranks - 1; });
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
  if (!failure_.empty()) return;
  failure_ = failure_of(rank());
  for (int other = 0; other < (rank() == 0 ? settings_.ranks : 1); ++other) {
    if (other != rank()) hub_->send({tcp::MessageKind::failed, rank(), other, failure_});
  }
}

std::string TcpBootstrap::failure_of(int rank) const {
  return "rank " + std::to_string(rank) + " has failed or ended";
}

std::string TcpBootstrap::receive(int from, const std::string& error) {
  std::deque<std::string>& texts = texts_[from];
  wait_until(error, [&] { return !texts.empty(); });
  std::string text = std::move(texts.front());
  texts.pop_front();
  return text;
}

void TcpBootstrap::receive_all() {
  for (const tcp::Message& message : hub_->receive(TcpHub::bootstrap)) take(message);
}

void TcpBootstrap::take(const tcp::Message& message) {
  switch (message.kind) {
    case tcp::MessageKind::text:
      texts_[message.from].push_back(message.text);
      break;
    case tcp::MessageKind::failed:
      report(message.text);
      break;
    case tcp::MessageKind::goodbye:
      ended_.insert(message.from);
      break;
    case tcp::MessageKind::closed:
      if (!ended_.contains(message.from)) report(failure_of(message.from));
      break;
    default:
      break;
  }
}

void TcpBootstrap::report(const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason;
  for (int other = 1; rank() == 0 && other < settings_.ranks; ++other) {
    hub_->send({tcp::MessageKind::failed, 0, other, reason});
  }
}

}  // namespace llmc
