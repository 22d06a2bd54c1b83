#include "llmc/train/run/interruption.h"
#include "llmc/train/run/stop_agreement.h"

namespace llmc {

std::int64_t StopAgreement::own() const {
  return Interruption::signal() + (own_failure_ ? kFailure : 0);
}

bool StopAgreement::settle(std::span<const std::int64_t> all) {
  for (const std::int64_t known : all) {
    failed_ = failed_ || known >= kFailure;
    const auto signal = static_cast<int>(known % kFailure);
    if (signal != 0) Interruption::adopt(signal);
    requested_ = requested_ || known != 0;
  }
  return requested_;
}

}  // namespace llmc
