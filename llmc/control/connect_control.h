// Connects the control threads of all ranks, over the bootstrap.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "llmc/comm/bootstrap.h"
#include "llmc/control/control_link.h"
#include "llmc/control/control_settings.h"

namespace llmc {

// All ranks call this together. Calls start() with the link of this rank: at rank 0 before the
// others can connect, so it must begin to serve them. Throws on all ranks if one cannot connect.
// From the environment: LLMC_CONTROL_PORT of rank 0 (default: the system chooses), and
// LLMC_CONTROL_ADDRESS, by which the other ranks reach it (default: those of its network
// interfaces).
void connect_control(Bootstrap& ranks, const ControlSettings& settings,
                     const std::function<void(std::unique_ptr<ControlLink>)>& start);

}  // namespace llmc
