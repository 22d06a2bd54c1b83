// Whether a run ends early: a signal has arrived on some rank, the time of --stop-after-minutes is
// over, or rank 0 cannot write its log. Ranks learn of it at different times, and a rank that left
// a loop alone would keep the others waiting for its part. So all ranks agree at fixed points, and
// decide only by what they agreed on.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "llmc/comm/exchange.h"
#include "llmc/device/device.h"

namespace llmc {

class StopAgreement {
 public:
  // `minutes`: the age of rank 0's process at which the run ends; 0: no limit. The exchange must
  // outlive the object.
  StopAgreement(Exchange& exchange, double minutes);
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // As of the last agreement: whether the run ends early, and whether that is because a rank
  // reported a failure.
  bool requested() const { return requested_; }
  bool failed() const { return failed_; }

  // The reason for the early end, if requested(): "SIGTERM" or "--stop-after-minutes 30".
  std::string reason() const;

  // This rank must stop at the next agreement.
  void report_failure() { own_failure_ = true; }

  // From now on the limit of minutes counts. A run calls this when its first step is done, so that
  // a series of processes that each resume the run advances, however short the limit is.
  void begin_time_limit() { counts_time_ = true; }

  // All ranks call this together. Returns requested().
  bool agree() { return settle(exchange_.all_gather({own()})); }

  // The same in two parts, for ranks that exchange other numbers as well: what this rank knows, and
  // what all ranks know.
  std::int64_t own() const;
  bool settle(std::span<const std::int64_t> all);

 private:
  // A rank's number: the signal, and these bits.
  static constexpr std::int64_t kFailure = 1024, kTimeIsOver = 2048;
  static constexpr std::int64_t kSignals = kFailure - 1;

  using Clock = std::chrono::steady_clock;

  bool time_is_over() const {
    return counts_time_ && end_ && Clock::now().time_since_epoch() >= *end_;
  }

  Exchange& exchange_;
  double minutes_;
  std::optional<std::chrono::duration<double>> end_;  // of the time, by the clock; only on rank 0
  bool requested_ = false, failed_ = false, own_failure_ = false;
  bool counts_time_ = false, signal_agreed_ = false;
};

}  // namespace llmc
