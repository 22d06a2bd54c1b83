// The settings that checkpoints keep, so that a resumed run can report which of them changed.
#pragma once

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/io/checkpoint/manifest.h"

namespace llmc {

// Maps flag to value, for every row that is noted on resume. Settings without effect are skipped.
// Switches are kept: a switch without effect is off.
inline CheckpointState recorded_settings(const RunConfig& config) {
  CheckpointState flags;
  for (const Setting<TrainProgram>& row : train_settings()) {
    if (row.on_resume != OnResume::noted) continue;
    const bool is_switch = row.field.type == SettingType::boolean;
    if (!is_switch && !has_effect(row, train_settings(), config)) continue;
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::vector<std::string>>) {
            flags[row.flag] = value;
          }
        },
        row.field.get(config));
  }
  return flags;
}

// Returns the current name of a flag, which a checkpoint may have stored under an old name.
inline std::string current_name(const std::string& flag) {
  const Setting<TrainProgram>* row = find_setting(train_settings(), flag);
  return row == nullptr ? flag : row->flag;
}

// Returns "--lr was 0.0006, it is 0.0003 now" for each flag that is in both with different values.
inline std::vector<std::string> changed_settings(const CheckpointState& old_settings,
                                                 const CheckpointState& settings) {
  std::vector<std::string> notes;
  for (const auto& [flag, value] : settings) {
    const auto old = old_settings.find(flag);
    if (old == old_settings.end() || old->second == value) continue;
    notes.push_back(flag + " was " + scalar_json(old->second).dump() + ", it is " +
                    scalar_json(value).dump() + " now");
  }
  return notes;
}

}  // namespace llmc
