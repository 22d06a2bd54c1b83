#include "llmc/config/card_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "llmc/config/setting.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_table.h"

namespace llmc {

std::string optimizer_text(const RunConfig& config) {
  std::vector<std::pair<int, std::string>> parts;
  for (const Setting<TrainProgram>& row : train_settings()) {
    std::string text = row.special.card.text;
    if (text.empty()) continue;
    text.replace(text.find("{}"), 2, value_text(row.field.get(config)));
    parts.emplace_back(row.special.card.order, text);
  }
  std::ranges::sort(parts);
  std::string all = "AdamW";
  for (const auto& [order, text] : parts) all += text;
  return all;
}

}  // namespace llmc
