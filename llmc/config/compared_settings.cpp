#include "llmc/config/compared_settings.h"

#include <charconv>
#include <variant>

namespace llmc {

std::string exact_text(const SettingValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  const auto* real = std::get_if<double>(&value);
  if (real == nullptr) return value_text(value);
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, *real).ptr};
}

}  // namespace llmc
