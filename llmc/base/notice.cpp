#include "llmc/base/notice.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

#include "llmc/base/terminal.h"

namespace llmc {

bool Notice::terminal() {
  return isatty(STDERR_FILENO) != 0;
}

void Notice::error(const std::string& text) {
  const std::lock_guard lock(mutex_);
  std::cerr << take_line_break() + text + "\n" << std::flush;
}

void Notice::interject_error(const std::string& text) {
  const std::unique_lock lock(mutex_, std::chrono::seconds(1));
  pollfd stderr_state{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  const bool is_writable = ::poll(&stderr_state, 1, 1000) == 1 && stderr_state.revents == POLLOUT;
  if (!lock || !is_writable) return;
  const std::string lines = take_line_break() + text + "\n";
  (void)!::write(STDERR_FILENO, lines.data(), lines.size());
}

void Notice::show_live(const std::string& text) {
  if (quiet()) return;
  const std::lock_guard lock(mutex_);
  std::cerr << live_line(text) << std::flush;
  live_line_open_ = true;
}

void Notice::end_live_line() {
  const std::lock_guard lock(mutex_);
  std::cerr << take_line_break();
}

}  // namespace llmc
