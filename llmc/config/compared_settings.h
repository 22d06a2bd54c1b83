// The settings that all ranks of a run must have in common, as names and values.
#pragma once

#include <string>

#include "llmc/comm/compare_ranks.h"
#include "llmc/config/setting.h"

namespace llmc {

// Returns the value so that different values have different texts.
std::string exact_text(const SettingValue& value);

// The flags that were given, except those that may differ.
template <class P>
NamedValues given_values(const Settings<P>& table, const typename P::Request& request) {
  NamedValues values;
  for (const Setting<P>& row : table) {
    const auto value = row.field.get_request(request);
    if (value && row.special.may_differ.empty()) values.push_back({row.flag, exact_text(*value)});
  }
  return values;
}

// All settings, except those that may differ.
template <class P>
NamedValues resolved_values(const Settings<P>& table, const typename P::Config& config) {
  NamedValues values;
  for (const Setting<P>& row : table) {
    if (row.special.may_differ.empty())
      values.push_back({row.flag, exact_text(row.field.get(config))});
  }
  return values;
}

}  // namespace llmc
