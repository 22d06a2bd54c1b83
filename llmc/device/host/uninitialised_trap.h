// With TRAP_UNINITIALISED=1 in the environment, the first arithmetic on uninitialised memory stops
// the program and prints the thread and a stack trace.
#pragma once

#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <string>

#include "llmc/device/host/fatal_report.h"

namespace llmc::host {

inline const bool kTrapUninitialised = [] {
  const char* value = std::getenv("TRAP_UNINITIALISED");
  return value != nullptr && std::string(value) == "1";
}();

// During its lifetime, arithmetic of this OS thread on the signalling NaN of uninitialised memory
// stops the program. Other invalid operations (inf - inf, 0 / 0) raise the same flag and stop it
// too.
class UninitialisedTrap {
 public:
  UninitialisedTrap() {
    if (!kTrapUninitialised) return;
    std::signal(SIGFPE, &UninitialisedTrap::report);
    std::feclearexcept(FE_INVALID);
    feenableexcept(FE_INVALID);
  }
  ~UninitialisedTrap() {
    if (kTrapUninitialised) fedisableexcept(FE_INVALID);
  }
  UninitialisedTrap(const UninitialisedTrap&) = delete;
  UninitialisedTrap& operator=(const UninitialisedTrap&) = delete;

 private:
  // The program exits here, so the handler may call functions that are not async-signal-safe.
  static void report(int) {
    report_and_exit("uninitialised read (or inf - inf, 0 / 0): arithmetic on a signalling NaN");
  }
};

}  // namespace llmc::host
