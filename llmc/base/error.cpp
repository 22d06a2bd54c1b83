#include "llmc/base/error.h"

namespace llmc {

std::string quantity(std::string_view name) {
  return '\x01' + std::string(name) + '\x02';
}

Error::Error(const std::string& text, const std::source_location& location)
    : std::runtime_error(with_quantities(text, [](std::string_view name) { return name; })),
      marked_text_(text),
      location_(std::string(location.file_name()) + ":" + std::to_string(location.line())) {}

void require(bool condition, std::string_view what, std::string_view hint,
             std::source_location location) {
  if (!condition) fail(std::string(what), std::string(hint), location);
}

}  // namespace llmc
