// Whether a run ends early: a signal has arrived on some rank, or rank 0 cannot write its log.
// Ranks learn of it at different times, and a rank that left a loop alone would keep the others
// waiting for its part. So all ranks agree at fixed points, and decide only by what they agreed on.
#pragma once

#include <cstdint>
#include <span>

#include "llmc/comm/exchange.h"
#include "llmc/device/device.h"

namespace llmc {

class StopAgreement {
 public:
  // The exchange must outlive the object.
  explicit StopAgreement(Exchange& exchange) : exchange_(exchange) {}
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // As of the last agreement: whether the run ends early, and whether that is because a rank
  // reported a failure.
  bool requested() const { return requested_; }
  bool failed() const { return failed_; }

  // This rank must stop at the next agreement.
  void report_failure() { own_failure_ = true; }

  // All ranks call this together. Returns requested().
  bool agree() { return settle(exchange_.all_gather({own()})); }

  // The same in two parts, for ranks that exchange other numbers as well: what this rank knows, and
  // what all ranks know.
  std::int64_t own() const;
  bool settle(std::span<const std::int64_t> all);

 private:
  static constexpr std::int64_t kFailure = 1024;  // more than any signal

  Exchange& exchange_;
  bool requested_ = false, failed_ = false, own_failure_ = false;
};

}  // namespace llmc
