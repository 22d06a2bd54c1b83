// Checks and parses values as typed on a command line or in a --config file; writes help texts.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "llmc/base/suggestions.h"
#include "llmc/config/setting.h"

namespace llmc {

// Parses all of `text` as a finite number. An integer may be written with an exponent, such as 1e3
// or 2.5e5, if its value is whole and at most 2^53. Returns false if `text` is not a number.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return std::isfinite(static_cast<double>(value));
  if constexpr (std::is_integral_v<Number>) {
    double real = 0;
    if (text.find_first_of("eE") == text.npos || !parse_number(text, real)) return false;
    const bool fits = std::trunc(real) == real && std::abs(real) <= 0x1p53 &&
                      (std::is_signed_v<Number> || real >= 0);
    if (fits) value = static_cast<Number>(real);
    return fits;
  }
  return false;
}

namespace setting_detail {

// The number that a text such as "10k", "1.5M", "1_000" or "1,000" stands for in other programs,
// in decimal digits; empty if it is none or not whole.
std::string whole_number_meant(std::string text);

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
  std::string suggestion;
  if constexpr (std::is_integral_v<Number>) {
    const std::string meant = whole_number_meant(text);
    if (meant != text && !meant.empty() && number_error<Number>(meant, range).empty()) {
      suggestion = did_you_mean({meant});
    }
  }
  return "'" + text + "' is not " + bounds + suggestion;
}

std::string choice_error(const std::string& text, const std::vector<std::string>& choices,
                         std::vector<KnownName> known);

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
      return choice_error(text, row.field.choices, row.field.other_choices);
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

// The name of the value after the flag in --help.
template <class P>
std::string unit_text(const Setting<P>& row) {
  if (row.field.type != SettingType::choice) return row.unit;
  std::string names;
  for (const std::string& name : row.field.choices) names += (names.empty() ? "" : "|") + name;
  return names;
}

// The help of a flag in one line: what it does, the flags it requires or excludes, and its default
// or "required".
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
  if (!row.special.required_unless.empty())
    text += "; not needed with " + row.special.required_unless;
  if (row.special.required) return text + " [required]";
  const std::string value = default_text(row);
  if (!value.empty()) return text + " [default: " + value + "]";
  return text + (row.field.type == SettingType::boolean ? " [default: off]" : " [default: none]");
}

}  // namespace llmc
