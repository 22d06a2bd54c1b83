// The calls of a rank: which one it is in, and the last 1,024. The rank's main thread enters and
// leaves calls; a control thread (llmc/control) reads them when a rank is lost.
//
// A backend that only puts a call into a stream passes a query, with which the control thread sees
// that the call is complete.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "llmc/comm/call.h"

namespace llmc {

// A group of ranks that make calls together.
struct CallGroup {
  std::string name;
  std::vector<int> members;  // ranks of the run, ascending
};

using CallClock = std::chrono::steady_clock;

struct LoggedCall {
  std::int64_t sequence = 0;  // of all calls of this rank, counted from 1; 0: none
  std::shared_ptr<const CallGroup> group;
  CommCall call;
  int peer = -1;  // rank of the run to or from which a message goes; -1: a collective
  std::int64_t step = 0;
  std::string operation;  // what the rank was doing
  CallClock::time_point entered{};
  std::optional<CallClock::time_point> left;

  std::int64_t bytes() const { return call.count * element_size(call.element); }
};

// Its functions may be called by any thread.
class CallLog {
 public:
  static constexpr std::size_t kKept = 1024;

  // A call from the construction to the destruction of the object. If an exception ends it, it
  // counts as not left: another rank may have caused that.
  class Scope {
   public:
    // `log` may be null: nothing is noted.
    Scope(CallLog* log, int group, const CommCall& call, int peer)
        : log_(log), sequence_(log == nullptr ? 0 : log->enter(group, call, peer)) {}
    ~Scope() {
      if (log_ != nullptr && std::uncaught_exceptions() <= exceptions_) log_->leave(sequence_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CallLog* log_;
    std::int64_t sequence_;
    int exceptions_ = std::uncaught_exceptions();
  };

  // Returns the number of the group, for Scope.
  int add_group(const std::string& name, const std::vector<int>& members);

  // The present call is in a stream, and complete when is_complete() is true. The query must not
  // throw, and must work until the log ends.
  void set_query(std::function<bool()> is_complete);

  // The present step, and what the rank is doing, such as "validation".
  void set_work(std::int64_t step, const std::string& operation);

  // The log as it is now. Queries calls that are in a stream.
  struct State {
    std::int64_t step = 0;
    std::string operation;
    std::int64_t num_events = 0;  // grows whenever a call is entered or left
    LoggedCall last;              // the first call that is not complete, otherwise the last one
  };
  State state();

  // The last calls, oldest first.
  std::vector<LoggedCall> calls();

 private:
  // A call that is in a stream.
  struct Queued {
    std::int64_t sequence = 0;
    std::function<bool()> is_complete;
  };

  std::int64_t enter(int group, const CommCall& call, int peer);
  void leave(std::int64_t sequence);

  void query();
  // Null if the call is not kept any more.
  LoggedCall* at(std::int64_t sequence);

  std::mutex mutex_;
  std::vector<std::shared_ptr<const CallGroup>> groups_;
  std::vector<LoggedCall> calls_ = std::vector<LoggedCall>(kKept);  // a ring
  std::deque<Queued> queued_;
  std::int64_t last_ = 0, num_events_ = 0;
  std::int64_t step_ = 0;
  std::string operation_ = "start";
};

}  // namespace llmc
