// Computes a value for every setting from the flags that were given.
#pragma once

#include <algorithm>
#include <string>

#include "llmc/config/setting.h"

namespace llmc {

// Whether the condition of a row holds; `config` must be complete.
template <class P>
bool has_effect(const Setting<P>& row, const Settings<P>& table, const typename P::Config& config) {
  if (row.special.condition.flag.empty()) return true;
  const std::string value =
      value_text(find_setting(table, row.special.condition.flag)->field.get(config));
  return std::ranges::find(row.special.condition.values, value) !=
         row.special.condition.values.end();
}

// Returns "--a needs --b" for a flag in `request` that needs one for which has(row) is false, or an
// empty text.
template <class P, class Has>
std::string requirement_error(const Settings<P>& table, const typename P::Request& request,
                              const Has& has) {
  for (const Setting<P>& row : table) {
    if (!is_given(row, request)) continue;
    for (const std::string& flag : row.required_flags) {
      if (!has(*find_setting(table, flag))) return row.flag + " needs " + flag;
    }
  }
  return {};
}

// Throws if a flag was given that has no effect.
template <class P>
void check_conditions(const Settings<P>& table, const typename P::Request& request,
                      const typename P::Config& config) {
  for (const Setting<P>& row : table) {
    if (!is_given(row, request) || has_effect(row, table, config)) continue;
    const std::string& flag = row.special.condition.flag;
    std::string allowed;
    for (const std::string& value : row.special.condition.values) {
      allowed += (allowed.empty() ? "" : " or ") + value;
    }
    fail_usage(row.flag + " has no effect with " + flag + " " +
                   value_text(find_setting(table, flag)->field.get(config)),
               "leave it out, or use " + flag + " " + allowed);
  }
}

// Sets every setting of the table, row by row: the given value, else the value that another given
// flag implies, else the preset's value, else the default. Throws an Error if settings conflict.
template <class P>
typename P::Config fill_settings(const Settings<P>& table, const typename P::Request& request,
                                 const typename P::Facts& facts,
                                 const typename P::Request& preset = {}) {
  typename P::Config config{};
  const Resolution<P> resolution{request, config, facts};
  for (const Setting<P>& row : table) {
    auto value = row.field.get_request(request);
    if (!value && row.implied_value) value = row.implied_value(resolution);
    if (!value) value = row.field.get_request(preset);
    if (!value && row.fallback.rule) value = row.fallback.rule(resolution);
    if (!value) value = row.fallback.value.value_or(row.field.zero());
    row.field.set(config, *value);
    if (row.verify) row.verify(resolution);
  }
  check_conditions(table, request, config);
  return config;
}

}  // namespace llmc
