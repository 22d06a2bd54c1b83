// The exit codes of the programs, and the report of an error that ends one.
#pragma once

#include <exception>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/config/quantities.h"

namespace llmc {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

// The exit code of a program that an error ends.
inline int exit_code_of(const std::exception& error) {
  return dynamic_cast<const UsageError*>(&error) != nullptr ? kExitUsage : kExitFailed;
}

// Prints the error that ends program P, also with --quiet, and returns the exit code.
template <class P>
int report_failure(const std::exception& error) {
  Notice::warn(std::string(P::kName) + ": " + error_text(error, P::settings()));
  return exit_code_of(error);
}

}  // namespace llmc
