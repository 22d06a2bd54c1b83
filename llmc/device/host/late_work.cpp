#include "llmc/device/host/late_work.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/host/guard.h"
#include "llmc/device/host/stream.h"

namespace llmc::host {

namespace {

// The queues of all streams, to find those of a thread.
class LateQueues {
 public:
  static LateQueues& instance() {
    static auto* const queues = new LateQueues;  // streams may be static objects
    return *queues;
  }

  void add(const std::shared_ptr<LateWork>& work, std::thread::id creator) {
    const std::lock_guard lock(mutex_);
    std::erase_if(queues_, [](const Queue& queue) { return queue.work.expired(); });
    queues_.push_back({work, creator});
  }
  std::vector<std::shared_ptr<LateWork>> of_thread(std::thread::id creator) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<LateWork>> result;
    for (const Queue& queue : queues_) {
      if (queue.creator != creator) continue;
      if (auto work = queue.work.lock()) result.push_back(std::move(work));
    }
    return result;
  }

 private:
  struct Queue {
    std::weak_ptr<LateWork> work;
    std::thread::id creator;
  };
  std::mutex mutex_;
  std::vector<Queue> queues_;
};

}  // namespace

void LatePoint::wait() const {
  work_->run_until(position_);
  work_->throw_error();
}

std::chrono::steady_clock::time_point LatePoint::time() const {
  const std::lock_guard lock(work_->mutex_);
  require(work_->executed_ >= position_, "the time of an event is read before its point is reached",
          "synchronise with the event first");
  return time_;
}

std::shared_ptr<LateWork> LateWork::create() {
  const std::shared_ptr<LateWork> work(new LateWork);
  LateQueues::instance().add(work, std::this_thread::get_id());
  return work;
}

LateWork::LateWork() : stream_(std::make_unique<Stream>(Stream::Immediate())) {}
LateWork::~LateWork() = default;

void LateWork::submit(Part part) {
  const std::lock_guard lock(mutex_);
  parts_.push_back(std::move(part));
}

std::shared_ptr<LatePoint> LateWork::mark() {
  const std::lock_guard lock(mutex_);
  const std::int64_t position = submitted() + 1;
  auto point = std::make_shared<LatePoint>(shared_from_this(), position);
  parts_.push_back([point](Stream&) { point->time_ = std::chrono::steady_clock::now(); });
  return point;
}

bool LateWork::is_done() {
  const std::lock_guard lock(mutex_);
  return parts_.empty() && !is_running();
}

std::int64_t LateWork::submitted() const {
  return executed_ + (is_running() ? 1 : 0) + static_cast<std::int64_t>(parts_.size());
}

void LateWork::run() {
  std::unique_lock lock(mutex_);
  const std::int64_t position = submitted();
  lock.unlock();
  run_until(position);
}

void LateWork::wait() {
  run();
  throw_error();
}

void LateWork::run_all() {
  for (const auto& work : LateQueues::instance().of_thread(std::this_thread::get_id())) {
    work->run();
  }
}

// A part may wait for another stream, whose thread may wait for this one: no lock is held while it
// runs. Two waits cannot depend on each other, because points are recorded before waits for them.
void LateWork::run_until(std::int64_t position) {
  std::unique_lock lock(mutex_);
  // A part that frees memory does not wait for itself.
  if (executed_ >= position || runner_ == std::this_thread::get_id()) return;
  const OpenDeviceMemory open;
  for (;;) {
    changed_.wait(lock, [&] { return executed_ >= position || !is_running(); });
    if (executed_ >= position) return;
    const Part part = std::move(parts_.front());
    parts_.pop_front();
    runner_ = std::this_thread::get_id();
    lock.unlock();
    std::exception_ptr error;
    try {
      part(*stream_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    runner_ = {};
    ++executed_;
    if (error) {
      if (!error_) error_ = error;
      executed_ += static_cast<std::int64_t>(parts_.size());
      parts_.clear();
    }
    changed_.notify_all();
  }
}

void LateWork::throw_error() {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace llmc::host
