// A settings table as JSON, for --help-json. Tests and generated documentation read it.
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <variant>

#include "llmc/base/json.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

namespace llmc {

inline constexpr std::array<const char*, 7> kOnResumeNames = {
    "free", "noted", "indirect", "adapted", "ignored", "fixed", "process"};

// Returns a list of rows. "default" is the constant, or null if the default is a rule or missing.
// "default_text" is what --help prints.
template <class P>
std::string settings_json(const Settings<P>& table) {
  Json rows = Json::array();
  for (const Setting<P>& row : table) {
    Json constant;
    if (row.fallback.value) {
      std::visit([&](const auto& value) { constant = value; }, *row.fallback.value);
    }
    rows.push_back({{"flag", row.flag},
                    {"synonym", row.special.synonym},
                    {"negated", row.special.negated},
                    {"old_names", row.special.old_names},
                    {"group", row.group},
                    {"unit", unit_text(row)},
                    {"switch", row.field.type == SettingType::boolean},
                    {"help", row.help},
                    {"default", constant},
                    {"default_text", default_text(row)},
                    {"needs", row.required_flags},
                    {"excludes", row.excluded_flags},
                    {"commands", row.commands},
                    {"changes_results", row.changes_results},
                    {"on_resume", kOnResumeNames[static_cast<std::size_t>(row.on_resume)]},
                    {"resume_text", row.special.resume_text},
                    {"may_differ", row.special.may_differ},
                    {"quantity", row.quantity}});
  }
  return rows.dump(1);
}

}  // namespace llmc
