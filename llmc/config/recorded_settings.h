// The settings of a run that its checkpoints record. A resumed run uses them for every flag that is
// not typed, and reports which of them changed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/terminal.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/io/checkpoint/manifest.h"

namespace llmc {

// Whether checkpoints keep the value of a setting.
inline bool is_recorded(const Setting<TrainProgram>& row) {
  return row.on_resume != OnResume::indirect && row.on_resume != OnResume::process;
}

// Maps flag to value, for every recorded row. A list is one text with commas. Settings without
// effect are skipped; switches are kept, because a switch without effect is off. A text that JSON
// cannot hold, such as a file name that is not UTF-8, is skipped, and so are rows that are recorded
// only if they were given.
inline CheckpointState recorded_settings(const RunConfig& config) {
  CheckpointState flags;
  for (const Setting<TrainProgram>& row : train_settings()) {
    if (!is_recorded(row)) continue;
    const bool is_switch = row.field.type == SettingType::boolean;
    if (!is_switch && !has_effect(row, train_settings(), config)) continue;
    const SettingValue value = row.field.get(config);
    if (row.recorded_if_given && value == row.field.zero()) continue;
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::string> ||
                        std::is_same_v<T, std::vector<std::string>>) {
            const std::string text = value_text(value);
            if (readable_text(text) == text) flags[row.flag] = text;
          } else {
            flags[row.flag] = v;
          }
        },
        value);
  }
  return flags;
}

// Returns the current name of a flag, which a checkpoint may have stored under an old name.
inline std::string current_name(const std::string& flag) {
  const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
  return row == nullptr ? flag : row->flag;
}

namespace recorded_settings_detail {

inline std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Converts a recorded value to the type of its row. Nothing for an empty text or list, and for a
// name of a choice that this program does not know. Throws if the value has another type.
inline std::optional<SettingValue> setting_value(const Setting<TrainProgram>& row,
                                                 const Scalar& value) {
  switch (row.field.type) {
    case SettingType::boolean:
      return value.boolean(row.flag);
    case SettingType::integer:
      return value.integer(row.flag);
    case SettingType::unsigned_integer:
      return value.unsigned_integer(row.flag);
    case SettingType::real:
      return value.number(row.flag);
    case SettingType::list:
      if (value.text(row.flag).empty()) return std::nullopt;
      return split_at_commas(value.text(row.flag));
    case SettingType::choice:
      if (std::ranges::find(row.field.choices, value.text(row.flag)) == row.field.choices.end()) {
        return std::nullopt;
      }
      return value.text(row.flag);
    case SettingType::text:
      break;
  }
  if (value.text(row.flag).empty()) return std::nullopt;
  return value.text(row.flag);
}

}  // namespace recorded_settings_detail

// Returns recorded settings as if they had been typed.
inline Request recorded_request(const CheckpointState& flags) {
  Request request;
  for (const auto& [flag, recorded] : flags) {
    const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
    if (row == nullptr || !is_recorded(*row)) continue;
    const auto value = recorded_settings_detail::setting_value(*row, recorded);
    if (value) row->field.set_request(request, *value);
  }
  return request;
}

// Returns recorded settings with the names of files as they are after a relocation.
inline CheckpointState relocated(CheckpointState flags, const Relocation& relocation) {
  for (auto& [flag, value] : flags) {
    const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
    if (row == nullptr || !row->relocate || !value.is_text() || value.text(flag).empty()) continue;
    const bool is_list = row->field.type == SettingType::list;
    const std::string text = value.text(flag);
    std::string all;
    for (const std::string& name : is_list ? recorded_settings_detail::split_at_commas(text)
                                           : std::vector<std::string>{text}) {
      if (!all.empty()) all += ',';
      all += row->relocate(name, relocation);
    }
    value = all;
  }
  return flags;
}

// Returns `request` with the recorded value of each flag that it lacks.
inline Request with_recorded(Request request, const Request& recorded) {
  for (const Setting<TrainProgram>& row : train_settings()) {
    if (row.field.get_request(request)) continue;
    const auto value = row.field.get_request(recorded);
    if (value) row.field.set_request(request, *value);
  }
  return request;
}

// Returns "--lr was 0.0006, it is 0.0003 now" for each flag that is in both with different values.
// Flags whose change is no change of the run, an error or described otherwise are left out.
inline std::vector<std::string> changed_settings(const CheckpointState& old_settings,
                                                 const CheckpointState& settings) {
  std::vector<std::string> notes;
  for (const auto& [flag, value] : settings) {
    const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
    const bool reported =
        row != nullptr && (row->on_resume == OnResume::noted || row->on_resume == OnResume::free);
    const auto old = old_settings.find(flag);
    if (!reported || old == old_settings.end() || old->second == value) continue;
    notes.push_back(flag + " was " + scalar_json(old->second).dump() + ", it is " +
                    scalar_json(value).dump() + " now");
  }
  return notes;
}

}  // namespace llmc
