// Makes a Program of a function of PTX.
#pragma once

#include <string>

#include "test/ptx/program.h"
#include "test/ptx/source.h"

namespace llmc_ptx {

// Throws an Error that names the line if the table of forms has no such form, or if an operand does
// not fit it.
Program decode(const Function& function, const Source& source);

}  // namespace llmc_ptx
