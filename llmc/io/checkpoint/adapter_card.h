// README.md of an adapter, with the front matter that model hubs read.
#pragma once

#include <string>

#include "llmc/io/checkpoint/adapter_config.h"

namespace llmc {

// `name` is the heading: the name of the directory.
std::string adapter_card_text(const AdapterConfig& config, const std::string& name);

}  // namespace llmc
