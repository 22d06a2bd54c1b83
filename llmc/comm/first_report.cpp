#include "llmc/comm/first_report.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/base/random_bits.h"
#include "llmc/comm/poll_pause.h"

namespace llmc {

FirstReport::FirstReport(Bootstrap& ranks) {
  const std::string name = ranks.all_gather("/llmc-" + checksum_text(random_bits()))[0];
  state_ = shared_state(name);
  ranks.all_gather("");  // all ranks have opened it
  if (ranks.places().local_rank == 0) ::shm_unlink(name.c_str());
}

bool FirstReport::begin() {
  int expected = kNone;
  return !state_ || state_->phase.compare_exchange_strong(expected, kBegun);
}

void FirstReport::end(int exit_code) {
  if (!state_) return;
  state_->exit_code.store(exit_code);
  state_->phase.store(kEnded);
}

std::optional<int> FirstReport::wait() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (PollPause pause; state_ && std::chrono::steady_clock::now() < end; pause.next()) {
    if (state_->phase.load() == kEnded) return state_->exit_code.load();
  }
  return std::nullopt;
}

std::shared_ptr<FirstReport::State> FirstReport::shared_state(const std::string& name) {
  const FileDescriptor file(::shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!file || ::ftruncate(file.get(), sizeof(State)) != 0) return nullptr;
  void* const memory =
      ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<State*>(memory), [](State* state) { ::munmap(state, sizeof(State)); }};
}

}  // namespace llmc
