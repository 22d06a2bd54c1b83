// Ctrl-C and SIGTERM as a request to end a generation with the text so far.
#pragma once

#include <signal.h>

#include <atomic>

namespace llmc {

// While an object exists, the first of the two signals is only recorded; a second one ends the
// process. SIGPIPE is ignored, so that a closed stdout is an error of the next write. A process may
// have only one object at a time.
class StopRequest {
 public:
  StopRequest() {
    flag().store(false);
    struct sigaction action {};
    action.sa_handler = [](int) { flag().store(true); };
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigemptyset(&ignore.sa_mask);
    ::sigaction(SIGPIPE, &ignore, &pipe_);
  }
  ~StopRequest() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
    ::sigaction(SIGPIPE, &pipe_, nullptr);
  }
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  static bool requested() { return flag().load(); }

 private:
  static std::atomic<bool>& flag() {
    static std::atomic<bool> requested{false};
    return requested;
  }

  struct sigaction interrupt_ {
  }, terminate_{}, pipe_{};
};

}  // namespace llmc
