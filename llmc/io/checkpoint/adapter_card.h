// README.md of an adapter, with the front matter that model hubs read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/adapter_config.h"

namespace llmc {

// The method, its ranks and scales, and the adapted layers, for a table of a card.
using AdapterRows = std::vector<std::pair<std::string, std::string>>;
AdapterRows adapter_rows(const AdapterConfig& config);

// The method, the ranks and the layers in one line.
std::string adapter_summary(const AdapterConfig& config);

// `name` is the heading: the name of the directory.
std::string adapter_card_text(const AdapterConfig& config, const std::string& name);

}  // namespace llmc
