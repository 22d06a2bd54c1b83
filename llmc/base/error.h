// Errors that state what is wrong, where, and what to do. Library code throws instead of exiting:
// main catches `Error`, prints it and returns 1 (2 for wrong usage).
#pragma once

#include <cstddef>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace llmc {

// Marks the name of a quantity, such as "sequence length", in the text of an error. Libraries know
// no flags: a program that has a flag for the quantity prints the flag instead
// (config/quantities.h).
std::string quantity(std::string_view name);

// Returns `text` with each marked quantity q replaced by name(q).
template <class Name>
std::string with_quantities(std::string_view text, Name&& name) {
  std::string result;
  while (true) {
    const std::size_t begin = text.find('\x01'), end = text.find('\x02', begin);
    if (end == std::string_view::npos) return result += text;
    result += text.substr(0, begin);
    result += name(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
  }
}

class Error : public std::runtime_error {
 public:
  Error(const std::string& what, const std::string& hint, const std::source_location& location)
      : Error(hint.empty() ? what : what + "\n  hint: " + hint, location) {}

  // "file:line" of the code that threw the error; for developers, so not part of what().
  const std::string& location() const { return location_; }

  // The text of what() in which the quantities are still marked.
  const std::string& marked_text() const { return marked_text_; }

 private:
  Error(const std::string& text, const std::source_location& location);

  std::string marked_text_, location_;
};

// An error of flags that contradict each other or the run's circumstances; the program exits as
// after a wrong command line.
class UsageError : public Error {
 public:
  using Error::Error;
};

// An error that follows from the end of another rank: a connection to it has ended.
class PeerError : public Error {
 public:
  using Error::Error;
};

// Marks an error that all ranks of a run throw together, with equal texts: it concerns no rank more
// than another, and rank 0 reports it.
class ErrorOfAllRanks {
 public:
  virtual ~ErrorOfAllRanks() = default;
};

class CommonError final : public Error, public ErrorOfAllRanks {
 public:
  using Error::Error;
};

class CommonUsageError final : public UsageError, public ErrorOfAllRanks {
 public:
  using UsageError::UsageError;
};

[[noreturn]] inline void fail(const std::string& what, const std::string& hint = {},
                              std::source_location location = std::source_location::current()) {
  throw Error(what, hint, location);
}

[[noreturn]] inline void fail_usage(
    const std::string& what, const std::string& hint = {},
    std::source_location location = std::source_location::current()) {
  throw UsageError(what, hint, location);
}

[[noreturn]] inline void fail_because_of_peer(
    const std::string& what, std::source_location location = std::source_location::current()) {
  throw PeerError(what, {}, location);
}

// Calls check(), whose values come from flags: its error becomes a UsageError.
template <class Check>
void check_usage(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    fail_usage(error.marked_text());
  }
}

// For errors that all ranks of a run throw together.
[[noreturn]] inline void fail_together(
    const std::string& what, const std::string& hint = {},
    std::source_location location = std::source_location::current()) {
  throw CommonError(what, hint, location);
}

[[noreturn]] inline void fail_usage_together(
    const std::string& what, const std::string& hint = {},
    std::source_location location = std::source_location::current()) {
  throw CommonUsageError(what, hint, location);
}

// The messages are views, so a check that passes allocates nothing.
void require(bool condition, std::string_view what, std::string_view hint = {},
             std::source_location location = std::source_location::current());

}  // namespace llmc
