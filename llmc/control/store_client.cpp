#include "llmc/control/store_client.h"

#include <utility>

#include "llmc/control/loss.h"

namespace llmc {

StoreClient::StoreClient(std::shared_ptr<TcpHub> hub, int rank)
    : ControlLink(std::move(hub)), rank_(rank) {}

std::vector<tcp::Message> StoreClient::receive(ControlClock::time_point) {
  std::vector<tcp::Message> messages = hub().receive(TcpHub::control);
  std::erase_if(messages, [&](tcp::Message& message) {
    has_ended_ = has_ended_ || message.kind == tcp::MessageKind::ended;
    if (message.kind != tcp::MessageKind::closed) return false;
    if (has_ended_) return true;
    const Loss loss{.kind = Loss::Kind::connection, .ranks = {0}, .reason = {}};
    message = {tcp::MessageKind::loss, 0, rank_, pack_loss(loss)};
    return false;
  });
  return messages;
}

}  // namespace llmc
