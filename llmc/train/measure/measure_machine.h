// --measure-machine: writes a machine file for the machines of this run, from which --plan predicts
// times. With several ranks, each has its share of the processors, as in a run, and the links
// between them are measured too.
#pragma once

#include "llmc/comm/exchange.h"
#include "llmc/comm/world.h"
#include "llmc/config/train_settings.h"

namespace llmc {

// Trains small models for a few steps, in --dtype, and communicates: less than a minute. Rank 0
// writes the file and prints it in short. All ranks call this together.
void measure_machine(const Request& request, World& world, Exchange& exchange);

}  // namespace llmc
