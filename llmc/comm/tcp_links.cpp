#include "llmc/comm/tcp_links.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/comm/poll_pause.h"

namespace llmc {

namespace tcp {

Links::Links() : wake_up_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require(wake_up_.is_open(), std::string("eventfd failed: ") + std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

Links::~Links() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  thread_.join();
}

std::shared_ptr<Link> Links::add(int rank, Socket socket) {
  auto link = std::make_shared<Link>(rank, std::move(socket));
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& other) { return other.expired(); });
  all_.push_back(link);
  return link;
}

void Links::send_later(const std::shared_ptr<Link>& link) {
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(unsent_, link) == unsent_.end()) unsent_.push_back(link);
  }
  wake();
}

void Links::keep(std::shared_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(link));
}

bool Links::finish(std::chrono::milliseconds deadline, const std::function<void()>& check) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (PollPause pause; !is_idle(); pause.next()) {
    check();
    if (std::chrono::steady_clock::now() >= end) return false;
  }
  return true;
}

void Links::shut_down() {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : all_) {
    if (const std::shared_ptr<Link> link = entry.lock()) link->shut_down();
  }
}

void Links::run() {
  std::vector<std::shared_ptr<Link>> links;
  std::vector<pollfd> entries;
  for (;;) {
    {
      // A link leaves the list only while the lock excludes send_later().
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      std::erase_if(unsent_, [](const auto& link) { return !link->has_unsent(); });
      links = unsent_;
    }
    entries.assign(1, {wake_up_.descriptor(), POLLIN, 0});
    for (const auto& link : links) entries.push_back({link->descriptor(), POLLOUT, 0});
    ::poll(entries.data(), entries.size(), -1);
    eventfd_t number = 0;
    if (entries[0].revents != 0) ::eventfd_read(wake_up_.descriptor(), &number);
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (entries[i + 1].revents != 0) links[i]->flush();
    }
    links.clear();  // a link that nothing else holds must be closed now
  }
}

void Links::wake() {
  ::eventfd_write(wake_up_.descriptor(), 1);
}

bool Links::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(unsent_, [](const auto& link) { return link->has_unsent(); });
}

}  // namespace tcp

}  // namespace llmc
