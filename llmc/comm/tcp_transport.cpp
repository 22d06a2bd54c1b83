#include "llmc/comm/tcp_transport.h"

#include <poll.h>

#include <cstddef>
#include <thread>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/comm/poll_pause.h"

namespace llmc {

namespace tcp {

namespace {

constexpr std::chrono::milliseconds kCheckInterval{20};
constexpr int kPollsWithoutSleep = 100;
// In this time the bootstrap can report the failure that made a rank end its connections.
constexpr std::chrono::milliseconds kReasonTime{200};

// Messages in the caller's memory, which is free again after the object.
class LentMessages {
 public:
  LentMessages() = default;
  LentMessages(const LentMessages&) = delete;
  LentMessages& operator=(const LentMessages&) = delete;
  ~LentMessages() {
    for (const auto& [link, message] : messages_) link->withdraw(message);
  }
  std::int64_t add(Link& link, const CommCall& call, const Outgoing& send) {
    messages_.emplace_back(&link, link.lend(call, send.data, send.bytes));
    return messages_.back().second;
  }

 private:
  std::vector<std::pair<Link*, std::int64_t>> messages_;
};

}  // namespace

TcpTransport::TcpTransport(std::string name, int rank, int run_rank,
                           std::vector<std::shared_ptr<Link>> peers, Links& links, Waits waits)
    : name_(std::move(name)),
      rank_(rank),
      run_rank_(run_rank),
      peers_(std::move(peers)),
      links_(links),
      waits_(std::move(waits)) {}

TcpTransport::~TcpTransport() {
  if (std::uncaught_exceptions() <= exceptions_) return;
  for (const auto& link : peers_) {
    if (link) links_.keep(link);
  }
}

void TcpTransport::exchange(const CommCall& call, std::span<const Outgoing> sends,
                            std::span<const Incoming> receives) {
  check_ranks();
  LentMessages lent;
  std::vector<Part> parts;
  for (const Outgoing& send : sends) {
    Link& link = peer(send.to);
    parts.push_back({.link = &link, .sent = lent.add(link, call, send)});
  }
  for (const Incoming& receive : receives) {
    parts.push_back({.link = &peer(receive.from), .receive = &receive});
  }
  last_progress_ = std::chrono::steady_clock::now();
  for (;;) {
    std::erase_if(parts, [&](const Part& part) { return part.is_ready && advance(call, part); });
    if (parts.empty()) return;
    wait(call, parts);
  }
}

void TcpTransport::post(const CommCall& call, const Outgoing& message) {
  check_ranks();
  const std::shared_ptr<Link>& link = peers_[static_cast<std::size_t>(message.to)];
  link->post(call, message.data, message.bytes);
  if (!link->failure().empty()) fail_because_of(call, *link);
  if (link->has_unsent()) links_.send_later(link);
}

bool TcpTransport::advance(const CommCall& call, const Part& part) {
  bool is_complete = false;
  if (part.receive == nullptr) {
    part.link->flush();
    is_complete = part.link->is_sent(part.sent);
  } else if (const LinkHeader* const header = part.link->next()) {
    require_same_call(call, run_rank_, header->call, part.link->rank());
    require(header->bytes == part.receive->bytes, "ranks disagree on the size of a message");
    is_complete = part.link->read(part.receive->data);
  }
  if (!is_complete && !part.link->failure().empty()) fail_because_of(call, *part.link);
  return is_complete;
}

void TcpTransport::wait(const CommCall& call, std::vector<Part>& parts) {
  std::vector<pollfd> entries;
  for (const Part& part : parts) {
    const short event = part.receive == nullptr ? POLLOUT : POLLIN;
    entries.push_back({part.link->descriptor(), event, 0});
  }
  for (int num_polls = 1;; ++num_polls) {
    // Other ranks mostly answer within microseconds; a sleep takes longer.
    const bool sleeps = num_polls > kPollsWithoutSleep;
    if (num_polls > 1 && !sleeps) std::this_thread::yield();
    const int num_ready = ::poll(entries.data(), entries.size(),
                                 sleeps ? static_cast<int>(kCheckInterval.count()) : 0);
    check_ranks();
    if (num_ready > 0) break;
    if (std::chrono::steady_clock::now() - last_progress_ < waits_.deadline) continue;
    fail(place(call) + ": nothing arrived from or left for rank " +
         std::to_string(parts.front().link->rank()) + " for " + seconds_text(waits_.deadline));
  }
  last_progress_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].is_ready = entries[i].revents != 0;
}

void TcpTransport::check_ranks() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  waits_.check();
}

void TcpTransport::fail_because_of(const CommCall& call, const Link& link) {
  const auto end = std::chrono::steady_clock::now() + kReasonTime;
  for (PollPause pause; std::chrono::steady_clock::now() < end; pause.next()) waits_.check();
  fail_because_of_peer("rank " + std::to_string(link.rank()) +
                       " has failed or ended: " + link.failure() + " (" + place(call) + ")");
}

std::string TcpTransport::place(const CommCall& call) const {
  return "group '" + name_ + "', " + call.text();
}

}  // namespace tcp

}  // namespace llmc
