#include "llmc/comm/tcp_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace llmc {

namespace tcp {

namespace {

bool is_message(const LinkHeader& header) {
  const auto kind = static_cast<std::int32_t>(header.call.kind);
  const auto element = static_cast<std::int32_t>(header.call.element);
  return std::memcmp(header.magic, LinkHeader{}.magic, sizeof header.magic) == 0 && kind >= 0 &&
         kind < kCommKinds && element >= 0 && element <= static_cast<std::int32_t>(Element::byte);
}

// Whether a call on a socket only has nothing to do now.
bool is_no_error() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Link::Link(int rank, Socket socket) : rank_(rank), socket_(std::move(socket)) {
  set_rank_options(socket_);
}

std::string Link::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Link::post(const CommCall& call, const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::int64_t message = append(call, data, bytes);
  flush_locked();
  if (unsent_.empty() || unsent_.back().number != message) return;
  Unsent& rest = unsent_.back();
  const auto* const begin = static_cast<const unsigned char*>(data);
  rest.copy.assign(begin, begin + bytes);
  rest.data = rest.copy.data();
}

std::int64_t Link::lend(const CommCall& call, const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return append(call, data, bytes);
}

bool Link::is_sent(std::int64_t message) const {
  const std::lock_guard lock(mutex_);
  return num_sent_ >= message;
}

void Link::withdraw(std::int64_t message) {
  const std::lock_guard lock(mutex_);
  if (unsent_.empty() || unsent_.back().number != message) return;
  fail_with("a message was withdrawn after an error");
}

void Link::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

bool Link::has_unsent() const {
  const std::lock_guard lock(mutex_);
  return !unsent_.empty();
}

const LinkHeader* Link::next() {
  if (arrived_ < sizeof arriving_) {
    auto* const begin = reinterpret_cast<unsigned char*>(&arriving_);
    arrived_ += read_some(begin + arrived_, sizeof arriving_ - arrived_);
    if (arrived_ < sizeof arriving_) return nullptr;
    if (!is_message(arriving_)) {
      arrived_ = 0;
      const std::lock_guard lock(mutex_);
      fail_with("it sent data that are not a message");
      return nullptr;
    }
  }
  return &arriving_;
}

bool Link::read(void* data) {
  const std::size_t end = sizeof arriving_ + arriving_.bytes;
  while (arrived_ < end) {
    const std::size_t first = arrived_ - sizeof arriving_;
    const std::size_t size =
        read_some(static_cast<unsigned char*>(data) + first, arriving_.bytes - first);
    if (size == 0) return false;
    arrived_ += size;
  }
  arrived_ = 0;
  return true;
}

void Link::shut_down() {
  ::shutdown(descriptor(), SHUT_RDWR);
}

std::int64_t Link::append(const CommCall& call, const void* data, std::size_t bytes) {
  ++num_messages_;
  if (failure_.empty()) {
    unsent_.push_back({.header = {.call = call, .bytes = bytes},
                       .data = data,
                       .sent = 0,
                       .number = num_messages_});
  }
  return num_messages_;
}

void Link::flush_locked() {
  while (!unsent_.empty()) {
    Unsent& message = unsent_.front();
    const std::size_t header = sizeof message.header, all = header + message.header.bytes;
    const std::size_t first = message.sent < header ? message.sent : header;
    const std::size_t data = message.sent - first;
    // The kernel only reads from these parts.
    iovec parts[] = {
        {reinterpret_cast<unsigned char*>(&message.header) + first, header - first},
        {const_cast<unsigned char*>(static_cast<const unsigned char*>(message.data)) + data,
         message.header.bytes - data}};
    msghdr request{};
    request.msg_iov = parts;
    request.msg_iovlen = 2;
    const ssize_t size = ::sendmsg(descriptor(), &request, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && !is_no_error()) return fail_with(std::strerror(errno));
    if (size < 0) return;
    message.sent += static_cast<std::size_t>(size);
    if (message.sent < all) continue;
    num_sent_ = message.number;
    unsent_.pop_front();
  }
}

void Link::fail_with(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  unsent_.clear();
}

std::size_t Link::read_some(void* data, std::size_t bytes) {
  const ssize_t size = ::recv(descriptor(), data, bytes, MSG_DONTWAIT);
  if (size > 0) return static_cast<std::size_t>(size);
  if (size < 0 && is_no_error()) return 0;
  const std::string reason = size < 0       ? std::strerror(errno)
                             : arrived_ > 0 ? "it ended in the middle of a message"
                                            : "its connection ended";
  const std::lock_guard lock(mutex_);
  fail_with(reason);
  return 0;
}

}  // namespace tcp

}  // namespace llmc
