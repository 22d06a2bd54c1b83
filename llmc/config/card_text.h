// The settings of a run in its model card.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "llmc/config/train_table.h"

namespace llmc {

// "AdamW, betas 0.9 and 0.95, ...": the card texts of all rows, sorted by their `order`.
inline std::string optimizer_text(const RunConfig& config) {
  std::vector<std::pair<int, std::string>> parts;
  for (const Setting<TrainProgram>& row : train_settings()) {
    std::string text = row.card.text;
    if (text.empty()) continue;
    text.replace(text.find("{}"), 2, value_text(row.field.get(config)));
    parts.emplace_back(row.card.order, text);
  }
  std::ranges::sort(parts);
  std::string all = "AdamW";
  for (const auto& [order, text] : parts) all += text;
  return all;
}

}  // namespace llmc
