#include "llmc/comm/call_log.h"

#include <algorithm>
#include <utility>

namespace llmc {

int CallLog::add_group(const std::string& name, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::make_shared<const CallGroup>(CallGroup{name, members}));
  return static_cast<int>(groups_.size()) - 1;
}

void CallLog::set_query(std::function<bool()> is_complete) {
  const std::lock_guard lock(mutex_);
  queued_.push_back({last_, std::move(is_complete)});
}

void CallLog::set_work(std::int64_t step, const std::string& operation) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  operation_ = operation;
  ++num_events_;
}

CallLog::State CallLog::state() {
  const std::lock_guard lock(mutex_);
  query();
  State state{.step = step_, .operation = operation_, .num_events = num_events_, .last = {}};
  const std::int64_t first =
      std::max<std::int64_t>(1, last_ - static_cast<std::int64_t>(kKept) + 1);
  const std::int64_t open = queued_.empty() ? last_ : queued_.front().sequence;
  if (last_ > 0) state.last = *at(std::max(first, open));
  return state;
}

std::vector<LoggedCall> CallLog::calls() {
  const std::lock_guard lock(mutex_);
  query();
  std::vector<LoggedCall> calls;
  const std::int64_t first =
      std::max<std::int64_t>(1, last_ - static_cast<std::int64_t>(kKept) + 1);
  for (std::int64_t sequence = first; sequence <= last_; ++sequence) calls.push_back(*at(sequence));
  return calls;
}

std::int64_t CallLog::enter(int group, const CommCall& call, int peer) {
  const std::lock_guard lock(mutex_);
  LoggedCall& entry = calls_[static_cast<std::size_t>(++last_) % kKept];
  const auto& members = groups_[static_cast<std::size_t>(group)];
  entry = {.sequence = last_,
           .group = members,
           .call = call,
           .peer = peer < 0 ? -1 : members->members[static_cast<std::size_t>(peer)],
           .step = step_,
           .operation = operation_,
           .entered = CallClock::now(),
           .left = {}};
  ++num_events_;
  // The queue does not grow without end if the state is never read.
  if (queued_.size() >= kKept) query();
  return last_;
}

void CallLog::leave(std::int64_t sequence) {
  const std::lock_guard lock(mutex_);
  ++num_events_;
  if (!queued_.empty() && queued_.back().sequence == sequence) return;
  if (LoggedCall* const call = at(sequence)) call->left = CallClock::now();
}

void CallLog::query() {
  while (!queued_.empty() && queued_.front().is_complete()) {
    if (LoggedCall* const call = at(queued_.front().sequence)) call->left = CallClock::now();
    queued_.pop_front();
    ++num_events_;
  }
}

LoggedCall* CallLog::at(std::int64_t sequence) {
  LoggedCall& call = calls_[static_cast<std::size_t>(sequence) % kKept];
  return call.sequence == sequence ? &call : nullptr;
}

}  // namespace llmc
