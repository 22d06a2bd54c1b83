// Errors that name the place, what was wrong and what to do about it. Nothing below main exits:
// main catches `Error`, prints it and returns 1 (or 2 for bad usage).
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace llmc {

// A setting in the text of an error, by the name of the quantity: "sequence length". Libraries know
// no flags; a program that has one for it shows that (config/quantities.h).
inline std::string quantity(std::string_view name) {
  return '\x01' + std::string(name) + '\x02';
}

// `text` with name(quantity) for each quantity in it.
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
  Error(const std::string& what, const std::string& hint, const std::source_location& where)
      : Error(hint.empty() ? what : what + "\n  hint: " + hint, where) {}

  // "file:line" of the code that found the error; for developers, so not part of what().
  const std::string& location() const { return location_; }

  // what() as it was written, with its quantities marked.
  const std::string& marked_text() const { return marked_text_; }

 private:
  Error(const std::string& text, const std::source_location& where)
      : std::runtime_error(with_quantities(text, [](std::string_view name) { return name; })),
        marked_text_(text),
        location_(std::string(where.file_name()) + ":" + std::to_string(where.line())) {}

  std::string marked_text_, location_;
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
