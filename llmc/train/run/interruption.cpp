#include "llmc/train/run/interruption.h"

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
