// The settings of a run in its model card.
#pragma once

#include <string>

#include "llmc/config/train_settings.h"

namespace llmc {

// "AdamW, betas 0.9 and 0.95, ...": the card texts of all rows, sorted by their `order`.
std::string optimizer_text(const RunConfig& config);

}  // namespace llmc
