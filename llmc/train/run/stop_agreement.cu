#include "llmc/base/number_text.h"
#include "llmc/base/process_clock.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/stop_agreement.h"

namespace llmc {

StopAgreement::StopAgreement(Exchange& exchange, double minutes)
    : exchange_(exchange), minutes_(minutes) {
  if (minutes == 0 || !exchange.first()) return;
  const std::chrono::duration<double> left(60 * minutes - seconds_since_process_start());
  end_ = Clock::now().time_since_epoch() + left;
}

std::string StopAgreement::reason() const {
  return signal_agreed_ ? Interruption::name() : number_text("--stop-after-minutes %g", minutes_);
}

std::int64_t StopAgreement::own() const {
  return Interruption::signal() | (own_failure_ ? kFailure : 0) |
         (time_is_over() ? kTimeIsOver : 0);
}

bool StopAgreement::settle(std::span<const std::int64_t> all) {
  for (const std::int64_t known : all) {
    failed_ = failed_ || (known & kFailure) != 0;
    const auto signal = static_cast<int>(known & kSignals);
    if (signal != 0) Interruption::adopt(signal);
    signal_agreed_ = signal_agreed_ || signal != 0;
    requested_ = requested_ || known != 0;
  }
  return requested_;
}
}  // namespace llmc
