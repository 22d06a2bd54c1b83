#include "llmc/config/setting.h"

#include <cstdio>

namespace llmc {

// ---- texts of values ----

std::string value_text(const SettingValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* integer = std::get_if<std::uint64_t>(&value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* real = std::get_if<double>(&value)) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", *real);
    return digits;
  }
  std::string all;
  for (const std::string& text : std::get<std::vector<std::string>>(value)) {
    all += (all.empty() ? "" : ",") + text;
  }
  return all;
}

}  // namespace llmc
