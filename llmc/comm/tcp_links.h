// All connections of a world to other ranks, and the thread that sends posted messages which a
// connection did not take at once. Messages therefore leave while their sender computes, and after
// it has destroyed its transport.
#pragma once

#include <sys/eventfd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "llmc/comm/tcp_link.h"

namespace llmc {

namespace tcp {

class Links {
 public:
  Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Stops the thread; messages that are not sent are lost.
  ~Links();

  // A new connection.
  std::shared_ptr<Link> add(int rank, Socket socket);

  // The thread sends the messages of this link and holds it until they are sent. A link that
  // fails is dropped.
  void send_later(const std::shared_ptr<Link>& link);

  // Holds a link as long as this object exists: after an error, the other end must not see the end
  // of the connection before the error is reported.
  void keep(std::shared_ptr<Link> link);

  // Waits until everything is sent or has failed; false after the deadline. Calls check() at times,
  // which may throw.
  bool finish(std::chrono::milliseconds deadline, const std::function<void()>& check);

  // Ends all connections, including those of transports that still exist.
  void shut_down();

 private:
  void run();
  void wake();
  bool is_idle();

  Socket wake_up_;  // an eventfd
  std::mutex mutex_;
  std::vector<std::weak_ptr<Link>> all_;
  std::vector<std::shared_ptr<Link>> unsent_, kept_;
  bool is_stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tcp

}  // namespace llmc
