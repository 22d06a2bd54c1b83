// The settings that all ranks of a run must have in common, as names and values.
#pragma once

#include <charconv>
#include <string>
#include <variant>

#include "llmc/comm/compare_ranks.h"
#include "llmc/config/setting.h"

namespace llmc {

// Returns the value so that different values have different texts.
inline std::string exact_text(const SettingValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  const auto* real = std::get_if<double>(&value);
  if (real == nullptr) return value_text(value);
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, *real).ptr};
}

// The flags that were given, except those that may differ.
template <class P>
NamedValues given_values(const Settings<P>& table, const typename P::Request& request) {
  NamedValues values;
  for (const Setting<P>& row : table) {
    const auto value = row.field.get_request(request);
    if (value && row.may_differ.empty()) values.push_back({row.flag, exact_text(*value)});
  }
  return values;
}

// All settings, except those that may differ.
template <class P>
NamedValues resolved_values(const Settings<P>& table, const typename P::Config& config) {
  NamedValues values;
  for (const Setting<P>& row : table) {
    if (row.may_differ.empty()) values.push_back({row.flag, exact_text(row.field.get(config))});
  }
  return values;
}

}  // namespace llmc
