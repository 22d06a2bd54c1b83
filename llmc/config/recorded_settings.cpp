#include "llmc/config/recorded_settings.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <variant>

#include "llmc/base/json.h"
#include "llmc/base/json_value.h"
#include "llmc/base/terminal.h"
#include "llmc/config/fill_settings.h"

namespace llmc {

CheckpointState recorded_settings(const RunConfig& config) {
  CheckpointState flags;
  for (const Setting<TrainProgram>& row : train_settings()) {
    if (!is_recorded(row)) continue;
    const bool is_switch = row.field.type == SettingType::boolean;
    if (!is_switch && !has_effect(row, train_settings(), config)) continue;
    const SettingValue value = row.field.get(config);
    if (row.special.recorded_if_given && value == row.field.zero()) continue;
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

std::string current_name(const std::string& flag) {
  const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
  return row == nullptr ? flag : row->flag;
}

namespace {

std::vector<std::string> split_at_commas(const std::string& text) {
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
std::optional<SettingValue> setting_value(const Setting<TrainProgram>& row, const Scalar& value) {
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

}  // namespace

Request recorded_request(const CheckpointState& flags) {
  Request request;
  for (const auto& [flag, recorded] : flags) {
    const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
    if (row == nullptr || !is_recorded(*row)) continue;
    const auto value = setting_value(*row, recorded);
    if (value) row->field.set_request(request, *value);
  }
  return request;
}

CheckpointState relocated(CheckpointState flags, const Relocation& relocation) {
  for (auto& [flag, value] : flags) {
    const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
    if (row == nullptr || !row->special.relocate || !value.is_text() || value.text(flag).empty())
      continue;
    const bool is_list = row->field.type == SettingType::list;
    const std::string text = value.text(flag);
    std::string all;
    for (const std::string& name :
         is_list ? split_at_commas(text) : std::vector<std::string>{text}) {
      if (!all.empty()) all += ',';
      all += row->special.relocate(name, relocation);
    }
    value = all;
  }
  return flags;
}

Request with_recorded(Request request, const Request& recorded) {
  for (const Setting<TrainProgram>& row : train_settings()) {
    if (row.field.get_request(request)) continue;
    const auto value = row.field.get_request(recorded);
    if (value) row.field.set_request(request, *value);
  }
  return request;
}

std::vector<std::string> changed_settings(const CheckpointState& old_settings,
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
