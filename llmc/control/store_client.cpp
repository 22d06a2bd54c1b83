#include "llmc/control/store_client.h"

#include <optional>
#include <thread>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/control/loss.h"

namespace llmc {

StoreClient::StoreClient(int rank, int ranks, const std::vector<std::string>& addresses, int port,
                         const std::string& key, std::chrono::seconds deadline)
    : rank_(rank) {
  const auto end = ControlClock::now() + deadline;
  std::string error = "no address is known", tried;
  do {
    tried.clear();
    for (const std::string& address : addresses) {
      tried += (tried.empty() ? "" : ", ") + address;
      connection_ = tcp::Connection(tcp::connect_to(address, port, &error));
      if (!connection_.is_open()) continue;
      const tcp::Message greeting{tcp::MessageKind::hello, rank, ranks, key};
      if (tcp::is_accepted(connection_.answer_to(greeting, end))) return;
      error = tcp::kNotRank0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (ControlClock::now() < end);
  fail("rank " + std::to_string(rank) + " cannot reach the control port " + std::to_string(port) +
           " of rank 0 at " + tried + ": " + error,
       "allow connections to this port; LLMC_CONTROL_PORT sets it, and LLMC_CONTROL_ADDRESS the "
       "address, for all ranks");
}

std::vector<int> StoreClient::descriptors() const {
  if (!connection_.is_open()) return {};
  return {connection_.socket().descriptor()};
}

std::vector<tcp::Message> StoreClient::receive(ControlClock::time_point) {
  std::vector<tcp::Message> messages;
  while (auto message = connection_.next()) {
    has_ended_ = has_ended_ || message->kind == tcp::MessageKind::goodbye;
    messages.push_back(std::move(*message));
  }
  if (connection_.is_open() || has_ended_) return messages;
  has_ended_ = true;
  const Loss loss{.kind = Loss::Kind::connection, .ranks = {0}, .reason = {}};
  messages.push_back({tcp::MessageKind::loss, 0, rank_, pack_loss(loss)});
  return messages;
}

}  // namespace llmc
