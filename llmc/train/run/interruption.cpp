#include "llmc/train/run/interruption.h"

#include <utility>

namespace llmc {

Interruption::Interruption(bool saves, bool training) {
  const std::lock_guard lock(mutex_);
  moment_ = {.training = training, .saves = saves};
}

void Interruption::begin() {
  request_.emplace(SignalRequest::AfterRequest::keep,
                   SignalAnswers{.first = answer_first, .last = answer_last});
}

void Interruption::set_activity(RunActivity activity, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  moment_.step = step;
  moment_.activity = activity;
  if (observe_) observe_(step, activity_name(activity));
}

void Interruption::set_observer(std::function<void(std::int64_t, const std::string&)> observe) {
  const std::lock_guard lock(mutex_);
  observe_ = std::move(observe);
  if (observe_) observe_(moment_.step, activity_name(moment_.activity));
}

void Interruption::set_saved(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  moment_.saved_step = step;
}

RunMoment Interruption::moment() {
  const std::lock_guard lock(mutex_);
  return moment_;
}

}  // namespace llmc
