// Which rank of a machine reports an error. Ranks often meet the same error, or one that follows
// from the error of another rank, and only the first of them must print it. A rank that fails
// cannot ask the others, which may wait in a collective. So the ranks of a machine share a word of
// memory, and the first to change it reports. No clock is involved.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "llmc/comm/bootstrap.h"

namespace llmc {

class FirstReport {
 public:
  // A rank that shares no memory with others: it reports.
  FirstReport() = default;

  // All ranks call this together. If memory cannot be shared, every rank reports its errors.
  explicit FirstReport(Bootstrap& ranks);

  // Whether this rank is the first of its machine to report an error. It must call end() then; the
  // others call wait().
  bool begin();

  // Whether a rank of this machine reports an error.
  bool has_begun() const { return state_ && state_->phase.load() != kNone; }

  // The error is printed, and the run ends with this exit code.
  void end(int exit_code);

  // Waits until the first report is printed and returns its exit code. Empty if that does not
  // happen within a minute, because its rank was killed.
  std::optional<int> wait() const;

 private:
  enum Phase : int { kNone, kBegun, kEnded };  // memory that is new is zero

  struct State {
    std::atomic<int> phase, exit_code;
  };
  static_assert(std::atomic<int>::is_always_lock_free, "processes share no locks");

  // Null if there is no shared memory.
  static std::shared_ptr<State> shared_state(const std::string& name);

  std::shared_ptr<State> state_;
};

}  // namespace llmc
