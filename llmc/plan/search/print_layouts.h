// --plan: the layouts of a run on some machine, without a run.
#pragma once

#include "llmc/config/train_settings.h"

namespace llmc {

// Prints the table of the fastest layouts that fit, and writes the file of --plan-out. Throws an
// Error if none fits.
void print_layouts(const Request& request, RunFacts facts);

}  // namespace llmc
