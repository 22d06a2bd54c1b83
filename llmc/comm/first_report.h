// Which rank of a machine reports an error. Ranks often meet the same error, or one that follows
// from the error of another rank, and only the first of them must print it. A rank that fails
// cannot ask the others, which may wait in a collective. So the ranks of a machine share a word of
// memory, and the first to change it reports. No clock is involved.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/comm/bootstrap.h"
#include "llmc/comm/poll_pause.h"

namespace llmc {

class FirstReport {
 public:
  // A rank that shares no memory with others: it reports.
  FirstReport() = default;

  // All ranks call this together. If memory cannot be shared, every rank reports its errors.
  explicit FirstReport(Bootstrap& ranks) {
    std::random_device random;
    const std::uint64_t high = random(), low = random();
    const std::string name = ranks.all_gather("/llmc-" + checksum_text(high << 32 | low))[0];
    state_ = shared_state(name);
    ranks.all_gather("");  // all ranks have opened it
    if (ranks.places().local_rank == 0) ::shm_unlink(name.c_str());
  }

  // Whether this rank is the first of its machine to report an error. It must call end() then; the
  // others call wait().
  bool begin() {
    int expected = kNone;
    return !state_ || state_->phase.compare_exchange_strong(expected, kBegun);
  }

  // Whether a rank of this machine reports an error.
  bool has_begun() const { return state_ && state_->phase.load() != kNone; }

  // The error is printed, and the run ends with this exit code.
  void end(int exit_code) {
    if (!state_) return;
    state_->exit_code.store(exit_code);
    state_->phase.store(kEnded);
  }

  // Waits until the first report is printed and returns its exit code. Empty if that does not
  // happen within a minute, because its rank was killed.
  std::optional<int> wait() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (PollPause pause; state_ && std::chrono::steady_clock::now() < end; pause.next()) {
      if (state_->phase.load() == kEnded) return state_->exit_code.load();
    }
    return std::nullopt;
  }

 private:
  enum Phase : int { kNone, kBegun, kEnded };  // memory that is new is zero

  struct State {
    std::atomic<int> phase, exit_code;
  };
  static_assert(std::atomic<int>::is_always_lock_free, "processes share no locks");

  // Null if there is no shared memory.
  static std::shared_ptr<State> shared_state(const std::string& name) {
    const FileDescriptor file(::shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), sizeof(State)) != 0) return nullptr;
    void* const memory =
        ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return nullptr;
    return {static_cast<State*>(memory), [](State* state) { ::munmap(state, sizeof(State)); }};
  }

  std::shared_ptr<State> state_;
};

}  // namespace llmc
