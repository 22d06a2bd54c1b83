// Computes a value for every setting from the flags that were given.
#pragma once

#include <algorithm>
#include <string>

#include "llmc/config/setting.h"

namespace llmc {

// Whether the condition of a row holds; `config` must be complete.
template <class P>
bool has_effect(const Setting<P>& row, const Settings<P>& table, const typename P::Config& config) {
  if (row.only_with.flag.empty()) return true;
  const std::string value = value_text(find_setting(table, row.only_with.flag)->field.get(config));
  return std::ranges::find(row.only_with.values, value) != row.only_with.values.end();
}

// Throws if a flag was given that has no effect.
template <class P>
void check_conditions(const Settings<P>& table, const typename P::Request& request,
                      const typename P::Config& config) {
  for (const Setting<P>& row : table) {
    if (!is_given(row, request) || has_effect(row, table, config)) continue;
    const std::string& flag = row.only_with.flag;
    std::string allowed;
    for (const std::string& value : row.only_with.values) {
      allowed += (allowed.empty() ? "" : " or ") + value;
    }
    fail(
        row.flag + " with " + flag + " " + value_text(find_setting(table, flag)->field.get(config)),
        "it is for " + flag + " " + allowed);
  }
}

// Sets every setting of the table, row by row: the given value, else the value that another given
// flag implies, else the preset's value, else the default. Throws an Error if settings conflict.
template <class P>
typename P::Config fill_settings(const Settings<P>& table, const typename P::Request& request,
                                 const typename P::Facts& facts,
                                 const typename P::Request& preset = {}) {
  typename P::Config config{};
  const Resolution<P> so_far{request, config, facts};
  for (const Setting<P>& row : table) {
    auto value = row.field.requested(request);
    if (!value && row.implied) value = row.implied(so_far);
    if (!value) value = row.field.requested(preset);
    if (!value && row.fallback.rule) value = row.fallback.rule(so_far);
    if (!value) value = row.fallback.value.value_or(row.field.zero());
    row.field.set(config, *value);
    if (row.verify) row.verify(so_far);
  }
  check_conditions(table, request, config);
  return config;
}

}  // namespace llmc
