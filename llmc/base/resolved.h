// Groups of settings are templates over the wrapper of their members: std::optional for the flags
// that were given, Resolved for the values that a run has.
#pragma once

namespace llmc {

template <class T>
using Resolved = T;

}  // namespace llmc
