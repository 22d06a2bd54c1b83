// Replaces calls by the functions that they call, so that a kernel needs no stack.
#pragma once

#include "test/ptx/source.h"

namespace llmc_ptx {

// `function` without calls: parameters and results of the called functions become registers. Throws
// an Error if a function calls itself or is not in `source`.
Function without_calls(Function function, const Source& source, int depth = 0);

}  // namespace llmc_ptx
