// Messages over a TCP connection, and how one is opened. Everything that arrives is checked: any
// program can connect to a port.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace llmc {

namespace tcp {

enum class MessageKind : std::int32_t {
  hello,    // the first one of a rank, `to` is the number of ranks; also rank 0's answer to it
  closed,   // never sent: the connection of rank `from` has ended (tcp_hub.h)
  text,     // a text for rank `to`
  failed,   // a rank has failed, for the reason in the text
  goodbye,  // the bootstrap of the rank has ended without an error
  // Between control threads (llmc/control):
  state,   // the state of rank `from`
  table,   // the states of all ranks
  loss,    // ranks are lost, see the text
  ask,     // for the state of all ranks at once
  answer,  // the text names ranks that have not answered; empty: all have
  ended    // the rank ends without an error, or after it reported its own
};

struct Message {
  MessageKind kind = MessageKind::hello;
  std::int32_t from = 0, to = 0;
  std::string text;
};

// A file descriptor of a socket; -1: none.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

  // Whether it can be read (POLLIN) or written (POLLOUT) within this time.
  bool wait(short events, std::chrono::milliseconds limit) const;

 private:
  int descriptor_;
};

// Small messages leave at once, and the failure of another machine is detected within two minutes.
void set_rank_options(const Socket& socket);

class Connection {
 public:
  explicit Connection(Socket socket);

  bool is_open() const { return is_open_ && socket_.is_open(); }
  const Socket& socket() const { return socket_; }

  // Closes the connection if the message cannot be sent.
  void send(const Message& message);

  // The next message that has arrived completely; does not wait. Closes the connection if the other
  // end has closed it, or sends anything else than messages.
  std::optional<Message> next();

  // The greeting of the other end, a hello, if it has arrived; does not wait. Closes the connection
  // if anything else has, or if the other end has given up: it sends nothing more before the
  // answer.
  std::optional<Message> greeting();

  // Sends a greeting and waits for the answer. None: the program at the other end closed the
  // connection, sent anything else than a message, or was silent for kAnswerTime or until `end`.
  std::optional<Message> answer_to(const Message& greeting,
                                   std::chrono::steady_clock::time_point end);

 private:
  static constexpr std::uint32_t kMaxBytes = 1 << 24;  // of a text
  static constexpr std::chrono::seconds kAnswerTime{10};

  // Integers are in the byte order of the machine: all of ours are little-endian.
  struct Header {
    char magic[8] = {'l', 'l', 'm', 'c', 'r', 'u', 'n', '1'};
    MessageKind kind = MessageKind::hello;
    std::int32_t from = 0, to = 0;
    std::uint32_t bytes = 0;
  };

  // Appends what has arrived, at most a few KB at a time.
  void read();

  // The descriptor stays, because another thread may poll it.
  void close();

  Socket socket_;
  bool is_open_ = true;
  std::string arrived_;
};

// A socket that listens on all addresses of this machine, or, if all ranks are on this machine,
// only on the loopback interface. None: `error` has the reason.
Socket listen_on(const std::string& name, int port, std::string* error);

// A connection to a program that listens; tries each address of the name once, for at most 3 s.
// Never one to itself: of this machine's ports, the system may choose the one that is called for
// the calling end, and TCP then connects the socket with itself if no program listens.
Socket connect_to(const std::string& name, int port, std::string* error);

}  // namespace tcp

}  // namespace llmc
