// Checks and parses values as typed on a command line or in a --config file; writes help texts.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/config/setting.h"

namespace llmc {

// Parses all of `text` as a finite number. Returns false if it is not one.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && std::isfinite(static_cast<double>(value));
}

namespace setting_detail {

template <class Number>
std::string number_error(const std::string& text, const Range& range) {
  Number value{};
  const bool is_valid = parse_number(text, value) && static_cast<double>(value) >= range.min &&
                        static_cast<double>(value) <= range.max;
  if (is_valid) return {};
  const bool is_integer = std::is_integral_v<Number>;
  char bounds[96];
  if (std::isinf(range.max)) {
    std::snprintf(bounds, sizeof bounds, "%s from %.15g up",
                  is_integer ? "a whole number" : "a finite number", range.min);
  } else {
    std::snprintf(bounds, sizeof bounds, "%s from %.15g to %.15g",
                  is_integer ? "a whole number" : "a number", range.min, range.max);
  }
  return "'" + text + "' is not " + bounds;
}

inline std::string choice_error(const std::string& text, const std::vector<std::string>& choices) {
  std::string names;
  for (const std::string& name : choices) {
    if (name == text) return {};
    names += (names.empty() ? "" : ", ") + name;
  }
  return "'" + text + "' is not one of " + names;
}

}  // namespace setting_detail

// Returns an error for one value of a setting, or an empty text.
template <class P>
std::string text_error(const Setting<P>& row, const std::string& text) {
  using namespace setting_detail;
  if (row.check) return row.check(text);
  switch (row.field.type) {
    case SettingType::integer:
      return number_error<std::int64_t>(text, row.range);
    case SettingType::unsigned_integer:
      return number_error<std::uint64_t>(text, row.range);
    case SettingType::real:
      return number_error<double>(text, row.range);
    case SettingType::choice:
      return choice_error(text, row.field.choices);
    default:
      return {};
  }
}

// Converts texts that text_error() accepts into a value. All types except `list` have one text.
template <class P>
SettingValue parse_value(const Setting<P>& row, const std::vector<std::string>& texts) {
  const auto number = [&](auto value) -> SettingValue {
    parse_number(texts.front(), value);
    return value;
  };
  switch (row.field.type) {
    case SettingType::boolean:
      return texts.front() == "true";
    case SettingType::integer:
      return number(std::int64_t{});
    case SettingType::unsigned_integer:
      return number(std::uint64_t{});
    case SettingType::real:
      return number(double{});
    case SettingType::list:
      return texts;
    default:
      return texts.front();
  }
}

// The placeholder after the flag in --help.
template <class P>
std::string unit_text(const Setting<P>& row) {
  if (row.field.type != SettingType::choice) return row.unit;
  std::string names;
  for (const std::string& name : row.field.choices) names += (names.empty() ? "" : "|") + name;
  return names;
}

// The help of a flag in one line: what it does, the flags it requires and its default.
template <class P>
std::string help_text(const Setting<P>& row) {
  const auto list = [](const std::vector<std::string>& flags) {
    std::string all;
    for (const std::string& flag : flags) all += (all.empty() ? "" : ", ") + flag;
    return all;
  };
  std::string text = row.help;
  if (!row.required_flags.empty()) text += "; needs " + list(row.required_flags);
  if (!row.excluded_flags.empty()) text += "; not with " + list(row.excluded_flags);
  const std::string value = default_text(row);
  return value.empty() ? text : text + " [default: " + value + "]";
}

}  // namespace llmc
