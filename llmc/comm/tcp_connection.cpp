#include "llmc/comm/tcp_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

namespace llmc {

namespace tcp {

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void Socket::close() {
  if (is_open()) ::close(std::exchange(descriptor_, -1));
}

bool Socket::wait(short events, std::chrono::milliseconds limit) const {
  pollfd entry{descriptor_, events, 0};
  return ::poll(&entry, 1, static_cast<int>(limit.count())) > 0;
}

namespace {

template <class T>
void set_option(const Socket& socket, int level, int name, const T& value) {
  setsockopt(socket.descriptor(), level, name, &value, sizeof value);
}

}  // namespace

void set_rank_options(const Socket& socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);  // a machine that fails closes no connection
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 9);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

Connection::Connection(Socket socket) : socket_(std::move(socket)) {
  const timeval limit{5, 0};  // a receiver that reads nothing must not stop the sender
  set_option(socket_, SOL_SOCKET, SO_SNDTIMEO, limit);
  set_rank_options(socket_);
}

void Connection::send(const Message& message) {
  const Header header{.kind = message.kind,
                      .from = message.from,
                      .to = message.to,
                      .bytes = static_cast<std::uint32_t>(message.text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += message.text;
  for (std::size_t first = 0; is_open() && first < bytes.size();) {
    const ssize_t size =
        ::send(socket_.descriptor(), bytes.data() + first, bytes.size() - first, MSG_NOSIGNAL);
    if (size > 0) first += static_cast<std::size_t>(size);
    if (size < 0 && errno != EINTR) close();
  }
}

std::optional<Message> Connection::next() {
  read();
  if (arrived_.size() < sizeof(Header)) return {};
  Header header;
  std::memcpy(&header, arrived_.data(), sizeof header);
  if (std::memcmp(header.magic, Header{}.magic, sizeof header.magic) != 0 ||
      header.bytes > kMaxBytes) {
    arrived_.clear();
    close();
    return {};
  }
  if (arrived_.size() < sizeof header + header.bytes) return {};
  Message message{header.kind, header.from, header.to,
                  arrived_.substr(sizeof header, header.bytes)};
  arrived_.erase(0, sizeof header + header.bytes);
  return message;
}

std::optional<Message> Connection::greeting() {
  std::optional<Message> message = next();
  if (!message) return {};
  if (message->kind == MessageKind::hello && !next() && is_open()) return message;
  close();
  return {};
}

std::optional<Message> Connection::answer_to(const Message& greeting,
                                             std::chrono::steady_clock::time_point end) {
  end = std::min(end, std::chrono::steady_clock::now() + kAnswerTime);
  send(greeting);
  while (is_open()) {
    if (auto answer = next()) return answer;
    if (std::chrono::steady_clock::now() >= end) break;
    if (is_open()) socket_.wait(POLLIN, std::chrono::milliseconds(20));
  }
  return {};
}

void Connection::close() {
  ::shutdown(socket_.descriptor(), SHUT_RDWR);
  is_open_ = false;
}

void Connection::read() {
  char bytes[4096];
  if (!is_open()) return;
  const ssize_t size = ::recv(socket_.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (size > 0) arrived_.append(bytes, static_cast<std::size_t>(size));
  const bool is_waiting = size < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK);
  if (size <= 0 && !is_waiting) close();
}

namespace {

// The addresses of a name; of this machine, to listen on, if the name is null.
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Addresses find_addresses(const char* name, int port, int family, std::string* error) {
  addrinfo hints{}, *first = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = family;
  hints.ai_flags = AI_PASSIVE;
  const int status = getaddrinfo(name, std::to_string(port).c_str(), &hints, &first);
  if (status != 0) *error = gai_strerror(status);
  return Addresses(first, &freeaddrinfo);
}

}  // namespace

Socket listen_on(const std::string& name, int port, std::string* error) {
  const bool is_local = name == "localhost" || name == "127.0.0.1" || name == "::1";
  // An IPv6 socket also accepts IPv4.
  for (const int family : {AF_INET6, AF_UNSPEC}) {
    const Addresses addresses =
        find_addresses(is_local ? name.c_str() : nullptr, port, family, error);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (::bind(socket.descriptor(), a->ai_addr, a->ai_addrlen) == 0 &&
          ::listen(socket.descriptor(), SOMAXCONN) == 0)
        return socket;
      *error = std::strerror(errno);
    }
  }
  return Socket();
}

namespace {

bool is_connected_to_itself(const Socket& socket) {
  sockaddr_storage own{}, peer{};
  socklen_t size = sizeof own, peer_size = sizeof peer;
  return getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
         getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         size == peer_size && std::memcmp(&own, &peer, size) == 0;
}

}  // namespace

Socket connect_to(const std::string& name, int port, std::string* error) {
  const Addresses addresses = find_addresses(name.c_str(), port, AF_UNSPEC, error);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    const timeval limit{3, 0};  // a machine that does not answer
    set_option(socket, SOL_SOCKET, SO_SNDTIMEO, limit);
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // its port is free once it is closed
    if (::connect(socket.descriptor(), a->ai_addr, a->ai_addrlen) != 0) {
      *error = std::strerror(errno == EINPROGRESS ? ETIMEDOUT : errno);
    } else if (is_connected_to_itself(socket)) {
      *error = std::strerror(ECONNREFUSED);
    } else {
      return socket;
    }
  }
  return Socket();
}

}  // namespace tcp

}  // namespace llmc
