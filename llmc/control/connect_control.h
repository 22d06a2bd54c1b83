// Connects the control threads of all ranks.
#pragma once

#include <memory>

#include "llmc/comm/bootstrap.h"
#include "llmc/control/control_link.h"
#include "llmc/control/control_settings.h"

namespace llmc {

// All ranks call this together; returns the link of this rank. A bootstrap with connections to rank
// 0 shares them. Otherwise new ones are made to LLMC_CONTROL_PORT of rank 0 (default: the system
// chooses), at LLMC_CONTROL_ADDRESS (default: the addresses of its network interfaces). Throws on
// all ranks if one cannot connect.
std::unique_ptr<ControlLink> connect_control(Bootstrap& ranks, const ControlSettings& settings);

}  // namespace llmc
