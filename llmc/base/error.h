// Errors that name the place, what was wrong and what to do about it. Nothing below main exits:
// main catches `Error`, prints it and returns 1 (or 2 for bad usage).
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace llmc {

class Error : public std::runtime_error {
 public:
  Error(const std::string& what, const std::string& hint, const std::source_location& where)
      : std::runtime_error(message(what, hint)), location_(place(where)) {}

  // "file:line" of the code that found the error; for developers, so not part of what().
  const std::string& location() const { return location_; }

 private:
  static std::string message(const std::string& what, const std::string& hint) {
    return hint.empty() ? what : what + "\n  hint: " + hint;
  }
  static std::string place(const std::source_location& where) {
    return std::string(where.file_name()) + ":" + std::to_string(where.line());
  }

  std::string location_;
};

[[noreturn]] inline void fail(const std::string& what, const std::string& hint = {},
                              std::source_location where = std::source_location::current()) {
  throw Error(what, hint, where);
}

// The messages are views so that a check that holds costs no allocation.
inline void require(bool condition, std::string_view what, std::string_view hint = {},
                    std::source_location where = std::source_location::current()) {
  if (!condition) fail(std::string(what), std::string(hint), where);
}

}  // namespace llmc
